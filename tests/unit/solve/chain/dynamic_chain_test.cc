#include "solve/chain/dynamic_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/solve/chain/vectors.h"

namespace reprise::detail {
namespace {

using testing::ElementsAre;
using Sizes = std::vector<std::int64_t>;

// The least peaks T(0) .. T(n) of all suffixes.
Sizes suffix_peaks(const Sizes& sizes) {
  Sizes peaks;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    peaks.push_back(least_peak(ByteSpan(sizes).subspan(i), sizes.back()).peak_bytes);
  }
  return peaks;
}

TEST(DynamicChainTest, FindsKnownOptima) {
  for (const ChainVector& v : chain_vectors()) {
    EXPECT_EQ(least_peak(v.sizes, v.sizes.back()).peak_bytes, v.dynamic_single) << v.name;
    const ChainAnswer answer = least_peak(v.sizes, 2 * v.sizes.back());
    EXPECT_EQ(answer.peak_bytes, v.dynamic_double) << v.name;
    EXPECT_EQ(dynamic_peak(v.sizes, answer.checkpoints, 2 * v.sizes.back()), v.dynamic_double) << v.name;
  }
}

TEST(DynamicChainTest, EverySuffixHasItsPeak) {
  EXPECT_THAT(suffix_peaks({1, 1, 1, 1, 1, 1, 1}), ElementsAre(5, 5, 5, 4, 4, 3, 1));
  EXPECT_THAT(suffix_peaks({0, 7, 1, 6, 3, 6, 6, 7}), ElementsAre(23, 29, 23, 27, 22, 25, 19, 7));
  EXPECT_THAT(suffix_peaks({0, 5, 10, 20, 5, 15, 5}), ElementsAre(55, 60, 55, 60, 40, 35, 5));
  EXPECT_THAT(suffix_peaks({4, 16, 16, 2, 8, 8, 1, 4, 1}), ElementsAre(52, 50, 42, 26, 25, 18, 10, 9, 1));
  EXPECT_THAT(suffix_peaks({3, 9, 9, 9, 1, 9, 9, 9, 2}), ElementsAre(40, 39, 39, 38, 30, 36, 29, 20, 2));
}

TEST(DynamicChainTest, UniqueOptimaAreFound) {
  EXPECT_THAT(least_peak(Sizes{1, 1, 1, 1, 1, 1, 1}, 1).checkpoints, ElementsAre(3, 5));
  EXPECT_THAT(least_peak(Sizes{0, 7, 1, 6, 3, 6, 6, 7}, 7).checkpoints, ElementsAre(2, 4, 6));
}

// The next checkpoint after each layer of the chain 0 5 10 20 5 15 5 is 2 2 4 4 5 6; of two equally good ones, the
// nearer is taken.
TEST(DynamicChainTest, TakesTheStepsOfTheWorkedExample) {
  const Sizes sizes = {0, 5, 10, 20, 5, 15, 5};
  const std::uint32_t next[] = {2, 2, 4, 4, 5, 6};
  for (std::uint32_t i = 0; i < 6; ++i) {
    const Checkpoints c = least_peak(ByteSpan(sizes).subspan(i), 5).checkpoints;
    EXPECT_EQ(c.empty() ? 6 : i + c[0], next[i]) << i;
  }
}

TEST(DynamicChainTest, PeaksOfGivenCheckpoints) {
  const Sizes vgg19 = vgg19_sizes();
  const auto peak = [&](const Checkpoints& c) { return dynamic_peak(vgg19, c, vgg19.back()) / 2048; };
  EXPECT_EQ(peak({2, 6}), 5292);
  EXPECT_EQ(peak({3, 6}), 5096);
  EXPECT_EQ(peak({2, 3, 6, 11}), 4704);
  EXPECT_EQ(peak({5, 10, 15, 20}), 6664);
  EXPECT_EQ(peak({3, 10}), 5096);
}

TEST(DynamicChainTest, EqualSizesFollowTheClosedForm) {
  const std::pair<std::size_t, std::int64_t> known[] = {{3, 4}, {8, 6}, {15, 7}, {24, 9}, {99, 16}, {100, 16}};
  for (const auto& [n, peak] : known) EXPECT_EQ(least_peak(Sizes(n + 1, 1), 2).peak_bytes, peak) << n;
  std::int64_t m = 1;
  for (std::int64_t n = 1; n < 400; ++n) {
    while (m * (m + 1) / 2 < n) ++m;
    EXPECT_EQ(least_peak(Sizes(static_cast<std::size_t>(n) + 1, 1), 1).peak_bytes, m + 2) << n;
  }
}

TEST(DynamicChainTest, HandlesTheShortestChains) {
  EXPECT_EQ(least_peak(Sizes{4}, 9).peak_bytes, 9);
  EXPECT_EQ(dynamic_peak(Sizes{4}, {}, 9), 9);
  EXPECT_TRUE(least_peak(Sizes{3, 5}, 5).checkpoints.empty());
  EXPECT_EQ(least_peak(Sizes{0, 0, 0}, 0).peak_bytes, 0);
}

}  // namespace
}  // namespace reprise::detail
