// Checkpoints of least static memory on a chain by shortest paths: the same optimum as static_chain.h with kChen, found
// the slower way of the paper, for comparison.
//
// Objective: bytes of all checkpoints + the largest sum strictly between two neighbours. For every candidate v of that
// largest sum (the sum of some interval) draw an arc u -> w between tensors whose inner sum is at most v, with length
// d_w; ends 0 and n + 1 are free. The shortest path from 0 to n + 1 names the checkpoints.
//
// Example, sizes 0 5 10 20 5 15 5: v = 20 has arcs 0 -> 2 (5 inside), 2 -> 4 (20), 4 -> 7 (20): 10 + 5 = 15, total 35.
//
// Candidates rise, and the search ends where v alone reaches the best total. From u only the arcs that exist are drawn.
// O(n^4) at worst; meant for n up to kFengHuangMostLayers (a second or so at that size).
//
// Feng, Huang, "Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs", CVPR 2021, the linear case.
// Tested by tests/unit/solve/chain/feng_huang_test.cc and tests/oracle/chain_peak_test.cc.
#pragma once

#include "solve/chain/chain.h"

namespace reprise::detail {

inline constexpr std::uint32_t kFengHuangMostLayers = 256;

// Checkpoints in 1 .. n.
[[nodiscard]] ChainAnswer feng_huang(ByteSpan sizes);

}  // namespace reprise::detail
