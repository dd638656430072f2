// Lets collectives go on beside the ops: starts move up, and waits of reductions move down.
//
// The example of two layers: each weight is gathered (10 ns) before its op reads it (10 ns):
//
//   gather a, wait, A, gather b, wait, B    40 ns        gather a, wait, gather b, A, wait, B    30 ns
//
// A start moves up to the last place from which its collective is through in time: going from the last wait to the
// first, it begins at min(clock at its wait, begin of the next one on its communicator) less its time. It does not pass
// the caller's op, what makes its operands, or the last reader of what its wait made before. A collective that is
// `once` starts where its operands are there, and its wait moves down to where it is through, but not past a reader.
// That takes the least memory without a stall. Where it takes more than the budget, starts in flight at the peak move
// down again, the one needed last first. Then single starts and waits at which the device still waits are moved on as
// far as the budget allows, where that makes the step faster.
//
// All of this works on arrays of bytes and clocks by place; the plan that comes out is simulated as any other, and the
// runs are left as they were unless it is better: neither the peak, above the budget, nor the time ever rises.
// O(runs * collectives). Tested by tests/property/hoist_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise::detail {

// `runs` has every run of a start before that of its wait.
[[nodiscard]] Plan hoist(const Graph& graph, const Costs& costs, std::span<const OpId> runs, std::int64_t budget_bytes);

}  // namespace reprise::detail
