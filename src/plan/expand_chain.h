// Turns a schedule over the stages of a chain, which may run each stage any number of times, into runs of ops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "papers/cut_chain.h"
#include "papers/papers_backward.h"
#include "reprise/graph.h"

namespace reprise::detail {

// Forward (again) or backward of one stage.
struct StageRun {
  std::uint32_t stage;
  bool backward;
};

// Backward ops of each stage. An op belongs to the earliest stage of which it, or an op before it, reads a value; a
// value that ends a stage counts as input of the next.
[[nodiscard]] std::vector<std::vector<OpId>> backward_by_stage(const Graph& step, const ForwardView& view,
                                                               const CutChain& chain);
// Contributions to the gradients of a stage's nodes; seeds first.
[[nodiscard]] std::vector<std::vector<OpId>> backward_by_stage(const PapersStep& step, const CutChain& chain);

// The step's forward pass and the caller's op stay as they are; from the schedule's first backward run on, the schedule
// is followed. Values that are not made again are kept; liveness frees the rest.
[[nodiscard]] std::vector<OpId> expand(const Graph& step, const ForwardView& view, const CutChain& chain,
                                       const std::vector<std::vector<OpId>>& backward,
                                       std::span<const StageRun> schedule);

}  // namespace reprise::detail
