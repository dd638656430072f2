// Checkpoints of least peak memory on a chain for a runtime that frees every value at its last use.
//
// dynamic_chain.h takes one gradient of the largest size for a whole segment. Here every action is counted: what a
// layer saves beside its output, whether its backward reads that output, workspaces, gradients of any size.
//
// Runtime, per layer k: output d_k, saved x_k, o_k (backward reads y_k), gradient g_k, workspaces wf_k and wb_k.
//   forward    make y_k (with wf_k), free y_(k-1) unless it is a checkpoint
//   loss       g_n comes while y_n is live: base = d_n + g_n
//   segment    (i, j), right to left. Free y_j unless o_j and x_j = 0. Make y_k, x_k for i < k < j; run layer j again
//   if
//              x_j > 0 (keeping y_j only if o_j). Then for k = j .. i + 1: make g_(k-1), run with wb_k, free g_k, x_k,
//              y_k, and y_(k-1) if it is inside and o_(k-1) is not set
//
// With X_k the running sum of d + x over the layers up to k, U(i, j) is the largest of
//
//   forward     [k - 1 > i] d_(k-1) + d_k + wf_k                                         i < k <= j
//   recompute   X_k - X_i + wf_k + g_j + [o_j and x_j = 0] d_j                           i < k < j
//   run again   X_j - X_i + wf_j + g_j                                                   if x_j > 0
//   backward    X_(k-1) - X_i + x_k + o_k d_k + g_k + g_(k-1) + wb_k                     i < k <= j
//
// and T(i) = d_i + min over j of max(T(j), U(i, j)) as in dynamic_chain.h. The gradient of y_0 has d_0 bytes if wanted,
// otherwise none.
//
// Example: one pooling layer, d = 1, x = 2 (indices), input 4, no input gradient: forward 1, again 1 + 2 + 1 = 4 with
// the gradient, backward 2 + 1 = 3; with the input 4 + 4 = 8.
//
// Without forward workspaces and with g_k >= d_k only the last two lines matter and U grows with the segment: O(n)
// (chain_search.h). Otherwise O(n^2), each search stopped when the segment alone exceeds what is known.
//
// The model follows the runtime, not a paper; the recurrence is that of Hong et al. 2025. Tested by
// tests/unit/solve/chain/live_chain_test.cc and tests/oracle/chain_live_test.cc (event by event).
#pragma once

#include "solve/chain/chain.h"

namespace reprise::detail {

struct LiveLayer {
  std::int64_t bytes = 0;        // d
  std::int64_t saved_bytes = 0;  // x
  bool reads_output = false;     // o
  std::int64_t gradient_bytes = 0;
  std::int64_t forward_workspace_bytes = 0;
  std::int64_t backward_workspace_bytes = 0;
};

// Layers 1 .. n.
[[nodiscard]] ChainAnswer least_live_peak(std::span<const LiveLayer> layers, std::int64_t input_bytes,
                                          bool input_gradient);

[[nodiscard]] std::int64_t live_peak(std::span<const LiveLayer> layers, std::int64_t input_bytes, bool input_gradient,
                                     const Checkpoints& checkpoints);

}  // namespace reprise::detail
