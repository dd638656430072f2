// Searches all schedules of a small step: every order of computes (repeated as often as it pays), in place or not, and
// of frees. A state is the set of live values; the search goes through the whole graph of states. It shares no code
// with src/solve.
#pragma once

#include <cstdint>
#include <optional>

#include "reprise/costs.h"

namespace reprise::test {

// The smallest peak of any schedule that ends with the step's outputs live.
// REQUIRES: at most 20 values, all planned, none held; no `once` op but the caller's, which reads and makes nothing.
[[nodiscard]] std::int64_t smallest_peak(const Graph& step, const Costs& costs);

// The least time of any such schedule within the budget, or nothing.
[[nodiscard]] std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes);

}  // namespace reprise::test
