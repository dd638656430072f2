// Searches all schedules of a small step with everything that a captured step has: `once` ops that run in order and
// once, pinned values, workspaces, several outputs, and ops that may run in place. A state is the set of live values
// and of ops that have run; the search goes through the whole graph of states. It shares no code with src/solve.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reprise/costs.h"

namespace reprise::test {

enum class BackwardOrder { kCaptured, kAny };

// The least time of any schedule within the budget, or nothing. With kCaptured, the first runs of the caller's op and
// of the backward ops must be in the order of the graph; a backward op need not run at all. REQUIRES: at most 20 values
// and 20 ops; no pinned value is overwritten.
[[nodiscard]] std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes,
                                                     BackwardOrder order);
// The same for a given order of the backward ops.
[[nodiscard]] std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes,
                                                     std::span<const OpId> order);

}  // namespace reprise::test
