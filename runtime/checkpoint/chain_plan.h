// Chooses which layers of a chain become checkpoints so that a step stays inside a budget, counting what checkpoint()
// itself holds.
//
// A part is one stage that runs once, or a checkpoint over stages first .. end - 1. While a part runs, forward or
// backward, the only other memory is what the parts before it hold and the gradients of the parameters behind it, which
// do not depend on how those stages were divided. So the peak of a part is a number U of (first, end, kind) above what
// is held before. With H for what the part itself holds between forward and backward:
//
//   T(n) = output;   T(first) = min over parts of max(U, H + T(end))          the smallest budget is T(0)
//
// For the least recomputation within a budget there are partials (bytes held, time) at each stage. A partial is dropped
// if another has neither more bytes nor more time. Times are rounded up to thousandths of the forward pass, so there
// are at most a thousand partials per stage: O(n^2) parts times that.
//
// The recurrence is that of Hong et al. 2025, as in the core's planner `chain`; U is what libtorch's engine takes.
// Tested by tests/runtime/chain_plan_test.cc (all ways to divide small chains).
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/torch/checkpoint.h"

namespace reprise {

// One or more layers that cannot be separated, as measured. Bytes are counted as the allocator counts them.
struct Stage {
  std::int64_t layers = 1;
  std::int64_t forward_ns = 0;
  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;     // for backward, in addition to input and output
  bool reads_output = false;        // whether backward reads the output
  std::int64_t forward_bytes = 0;   // workspace
  std::int64_t backward_bytes = 0;  // the highest above all of these and the output's gradient
  std::int64_t gradient_bytes = 0;  // gradients of parameters, which stay after the step
  std::int64_t state_bytes = 0;     // what a checkpoint of this stage copies: buffers
};

// The most that the parts of `plan`, counted in stages, take: bytes allocated after the call of the chain, without the
// input, and with the output held by the caller to the end.
[[nodiscard]] std::int64_t peak_bound(const std::vector<Stage>& stages, const std::vector<ChainPlan::Part>& parts,
                                      std::int64_t random_state_bytes);

// The parts are counted in layers. Throws InputError, with the smallest budget, if no plan fits. REQUIRES: at least one
// stage.
[[nodiscard]] ChainPlan plan_chain(const std::vector<Stage>& stages, std::int64_t random_state_bytes,
                                   std::int64_t budget_bytes);

}  // namespace reprise
