// Small changes to known plans, at other costs than they were made for.
//
// The labels are read off each plan (evaluator.h), and the local search goes on from those nearest the budget: what
// does not fit is repaired, and where there is room, more is kept (local_search.h). Example: at the size that a plan
// was made for, it just fits 100 bytes; at another size it would need 104 of 100. Instead of a whole search, one more
// value is dropped.
//
// Cost: `work` reads at most, and a few more for what was begun; 10 ns each. Tested by
// tests/unit/solve/auto/adapt_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise::detail {

// The fastest plan found whose peak is within the budget, or nothing. The plans are legal for the graph, which has a
// caller's op, and do not copy.
[[nodiscard]] std::optional<Plan> adapt(const Graph& graph, const Costs& costs, std::span<const Plan> plans,
                                        std::int64_t budget_bytes, std::size_t work);

}  // namespace reprise::detail
