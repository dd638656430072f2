// A sanitizer build must really have its sanitizer: without the flag, all tests would pass and nothing would be found.
#include <gtest/gtest.h>

#include <string_view>

// GCC defines __SANITIZE_*__, and clang has __has_feature.
#if defined(__has_feature)
#define REPRISE_HAS_FEATURE(name) __has_feature(name)
#else
#define REPRISE_HAS_FEATURE(name) 0
#endif

namespace reprise {
namespace {

#if defined(REPRISE_SANITIZE)
constexpr std::string_view kAsked = REPRISE_SANITIZE;
#else
constexpr std::string_view kAsked;
#endif

#if defined(__SANITIZE_ADDRESS__) || REPRISE_HAS_FEATURE(address_sanitizer)
constexpr bool kAddress = true;
#else
constexpr bool kAddress = false;
#endif

#if defined(__SANITIZE_THREAD__) || REPRISE_HAS_FEATURE(thread_sanitizer)
constexpr bool kThread = true;
#else
constexpr bool kThread = false;
#endif

bool asked_for(std::string_view sanitizer) { return kAsked.find(sanitizer) != std::string_view::npos; }

TEST(SanitizerTest, AddressSanitizerIsOnExactlyWhenAskedFor) { EXPECT_EQ(kAddress, asked_for("address")); }

TEST(SanitizerTest, ThreadSanitizerIsOnExactlyWhenAskedFor) { EXPECT_EQ(kThread, asked_for("thread")); }

}  // namespace
}  // namespace reprise
