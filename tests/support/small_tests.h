// Whether tests run on few inputs, as they do in debug and sanitizer builds.
#pragma once

#include <concepts>

namespace reprise::test {

#ifdef REPRISE_SMALL_TESTS
inline constexpr bool kSmallTests = true;
#else
inline constexpr bool kSmallTests = false;
#endif

// Those builds use a fifth of the inputs.
constexpr auto fewer(std::integral auto inputs) { return kSmallTests ? inputs / 5 : inputs; }

}  // namespace reprise::test
