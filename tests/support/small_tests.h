// Whether tests run on few inputs: in debug and sanitizer builds.
#pragma once

namespace reprise::test {

#ifdef REPRISE_SMALL_TESTS
inline constexpr bool kSmallTests = true;
#else
inline constexpr bool kSmallTests = false;
#endif

}  // namespace reprise::test
