// Checkpoints of least peak memory on a chain, where a checkpoint is given up once the backward pass has gone past it.
//
// Segment between neighbouring checkpoints i < j, while it is worked on (S = running sums of d):
//
//   U(i, j) = d_(i+1) + .. + d_j + max(d_i .. d_(j-1))
//
// the tensors recomputed, the gradient that arrives at y_j, and the largest gradient made inside. Beside it only the
// checkpoints up to i are held, so a plan 0 = c_0 < c_1 < .. < c_m = n has the peak
//
//   max( max over t of d_(c_0) + .. + d_(c_t) + U(c_t, c_(t+1)),   d_(c_0) + .. + d_(c_(m-1)) + base )
//
// where base is the memory of the chain's end; 2 d_n when the loss gradient is made while y_n is live.
//
// Example, seven tensors of size 1 (n = 6), base 1: checkpoints 3 and 5 make segments of 3, 2 and 1 layers with
// 1 + 4 = 2 + 3 = 3 + 2 = 5. Segments get shorter to the right, because more checkpoints lie beside them; for equal
// sizes the peak is m + 2 with m(m + 1)/2 >= n, against about 2 sqrt(n) for segments of equal length.
//
// O(n) time and memory (chain_search.h); ten million layers take a fraction of a second.
//
// Hong, Tsai, Wang, Liu, Wu, "GPU Memory Usage Optimization for Backward Propagation in Deep Network Training", 2025.
// Tested by tests/unit/solve/chain/dynamic_chain_test.cc and tests/oracle/chain_peak_test.cc.
#pragma once

#include "solve/chain/chain.h"

namespace reprise::detail {

[[nodiscard]] ChainAnswer least_peak(ByteSpan sizes, std::int64_t base_bytes);

// The peak of given interior checkpoints.
[[nodiscard]] std::int64_t dynamic_peak(ByteSpan sizes, const Checkpoints& checkpoints, std::int64_t base_bytes);

}  // namespace reprise::detail
