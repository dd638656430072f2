// What fake_host_link.cc is told about its link.
#pragma once

#include <cstdint>
#include <optional>

namespace reprise::test {

// How fast copies are in the steps that are timed, and how long these wait for them.
struct FakeRates {
  std::int64_t down_bytes_per_s;
  std::int64_t up_bytes_per_s;
  std::int64_t wait_ns;
};

constexpr std::int64_t kMeasuredRate = 40'000'000'000;  // each way, while nothing else uses the link

// Nothing: steps are not timed.
std::optional<FakeRates>& fake_rates();

}  // namespace reprise::test
