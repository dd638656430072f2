// All schedules of a small step as a capture gives it: `once` ops in order and once, resident and held values pinned,
// workspaces, several outputs, in place or not. A state is the set of live values and the ops that ran already; the
// graph of states is searched as a whole. Shares nothing with src/solve.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reprise/costs.h"

namespace reprise::test {

enum class BackwardOrder { kCaptured, kAny };

// The least time of any schedule within the budget, or nothing. kCaptured: first the caller's op and then the backward
// ops, each where it runs at all, run for the first time in the order of the graph.
// REQUIRES: at most 20 values and 20 ops; no pinned value is overwritten.
[[nodiscard]] std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes,
                                                     BackwardOrder order);
// The same for a given order of the backward ops.
[[nodiscard]] std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes,
                                                     std::span<const OpId> order);

}  // namespace reprise::test
