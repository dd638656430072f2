// Which layers of a chain become checkpoints so that a step stays inside a budget, by what checkpoint() itself holds.
//
// A part is one stage that runs once, or a checkpoint over stages first .. end - 1. While it is worked on, forward or
// backward, only what the parts before it hold lies beside it, and the gradients of the parameters behind it, which do
// not depend on how those stages were parted. So the peak of a part is a number U of (first, end, kind) above what is
// held before, and with H what the part itself holds between forward and backward
//
//   T(n) = output;   T(first) = min over parts of max(U, H + T(end))          the smallest budget is T(0)
//
// Least recomputation within a budget: partials (bytes held, time) at each stage, dropped where another has neither
// more bytes nor more time. Times are rounded up to thousandths of the forward pass, so there are at most a thousand
// partials per stage: O(n^2) parts times that.
//
// The recurrence is that of Hong et al. 2025, as in the core's planner `chain`; U is what libtorch's engine takes.
// Tested by tests/runtime/chain_plan_test.cc (all ways to part small chains).
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/torch/checkpoint.h"

namespace reprise {

// One or more layers that cannot be parted, as measured. Bytes as the allocator counts them.
struct Stage {
  std::int64_t layers = 1;
  std::int64_t forward_ns = 0;
  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;     // for backward, beside input and output
  bool reads_output = false;        // in backward
  std::int64_t forward_bytes = 0;   // workspace
  std::int64_t backward_bytes = 0;  // highest above all these and the output's gradient
  std::int64_t gradient_bytes = 0;  // of parameters: stay after the step
  std::int64_t state_bytes = 0;     // what a checkpoint of this stage copies: buffers
};

// What the parts of `plan`, here in stages, take at most: bytes allocated after the call of the chain, the input not
// among them, the output held by the caller to the end.
[[nodiscard]] std::int64_t peak_bound(const std::vector<Stage>& stages, const std::vector<ChainPlan::Part>& parts,
                                      std::int64_t random_state_bytes);

// Parts in layers. Throws InputError with the smallest budget where none fits. REQUIRES: at least one stage.
[[nodiscard]] ChainPlan plan_chain(const std::vector<Stage>& stages, std::int64_t random_state_bytes,
                                   std::int64_t budget_bytes);

}  // namespace reprise
