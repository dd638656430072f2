// Checkpoints of least memory on a chain, where checkpoints are held to the end of the step.
//
// A set C of tensors 1 .. n costs (0 and n + 1 stand for both ends and are free)
//
//   cost(C) = sum of d_c over C + max over neighbours l < r in {0} + C + {n + 1} of s(l, r)
//
//   kChen      s = d_(l+1) + .. + d_(r-1)                               only what is recomputed
//   kLiteral   s = the same + max(d_l .. d_(r-1)), but 0 if r = l + 1   with the largest gradient
//   kRepaired  s = the same + max(d_l .. d_(r-1)), without exception    a segment of one layer has a gradient too
//
// Idea: allow segments up to v and buy the cheapest checkpoints that respect it. With key(0) = 0,
// key(j) = d_j + T_v(j - 1), and lo(i) the least j with s(j, i + 1) <= v,
//
//   T_v(i) = min over lo(i) <= j <= i of key(j)        cost = min over v of T_v(n) + v
//
// lo only moves right, so one pass with a sliding minimum gives T_v: O(n). There are O(n^2) values of v: O(n^3).
//
// Most v need no pass. T_v(n) can only rise as v falls, so after a pass at v nothing below it beats the best cost known
// unless it is below best - T_v(n): go there at once. This skips all v that lead to the same checkpoints, too.
//
// Example, sizes 0 5 10 20 5 15 5 (kChen): v = 60 buys nothing, cost 60. The next v is 59, where checkpoint 1 (5)
// leaves a segment of 55; ... v = 20 buys 2 and 4 (15), cost 35, the best.
//
// Hong, Tsai, Wang, Liu, Wu, "GPU Memory Usage Optimization for Backward Propagation in Deep Network Training", 2025;
// kRepaired and the descent in v are ours. Tested by tests/unit/solve/chain/static_chain_test.cc and
// tests/oracle/chain_peak_test.cc.
#pragma once

#include "solve/chain/chain.h"

namespace reprise::detail {

enum class SegmentMemory : std::uint8_t { kChen, kLiteral, kRepaired };

// Checkpoints in 1 .. n.
[[nodiscard]] ChainAnswer least_static_peak(ByteSpan sizes, SegmentMemory memory);

[[nodiscard]] std::int64_t static_peak(ByteSpan sizes, const Checkpoints& checkpoints, SegmentMemory memory);

}  // namespace reprise::detail
