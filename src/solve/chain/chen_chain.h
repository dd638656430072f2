// Sublinear-memory checkpoints on a chain, four ways.
//
// chen_uniform    n layers in about sqrt(n) segments of equal length: sqrt(n) checkpoints beside one segment of
// sqrt(n).
//                 24 layers: 5, 10, 15, 20.
// chen_balanced   walk the layers adding up sizes; whenever the sum exceeds the budget b, this tensor becomes a
//                 checkpoint and the sum starts again. Gives x, the bytes of the checkpoints, and y, the largest sum.
// chen_search     b is not the memory of the step, so several are tried: b_0 = sqrt(x y) from the walk with b = 0, then
//                 six values from b_0 / sqrt(2) to b_0 sqrt(2), each a fifth of an octave above the last; the judge
//                 says which plan is best.
// chen_recursive  halve the chain, reverse the right half from the checkpoint in the middle, then the left half, both
//                 by the same method: log2(n) checkpoints at a time, about n/2 log2(n) forward runs.
//
// All linear in the size of their answer; the search walks seven times.
//
// Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, sections 4.2 and 4.3 and
// algorithm 3. Tested by tests/unit/solve/chain/chen_chain_test.cc and tests/oracle/chain_schedule_test.cc.
#pragma once

#include <functional>

#include "solve/chain/chain.h"

namespace reprise::detail {

[[nodiscard]] Checkpoints chen_uniform(std::uint32_t layers);

struct BalancedPlan {
  Checkpoints checkpoints{};       // interior only
  std::int64_t stored_bytes = 0;   // x, with y_n where the walk stops there
  std::int64_t largest_bytes = 0;  // y
};
[[nodiscard]] BalancedPlan chen_balanced(ByteSpan sizes, std::int64_t budget_bytes);

// The peak of interior checkpoints; by default dynamic_peak with base 2 d_n.
using PeakJudge = std::function<std::int64_t(const Checkpoints&)>;
[[nodiscard]] ChainAnswer chen_search(ByteSpan sizes, const PeakJudge& judge);
[[nodiscard]] ChainAnswer chen_search(ByteSpan sizes);

[[nodiscard]] std::vector<ChainAction> chen_recursive(std::uint32_t stages);

}  // namespace reprise::detail
