// From a schedule over the segments of a chain, each run as often as the schedule likes, to runs of ops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "papers/cut_chain.h"
#include "papers/papers_backward.h"
#include "reprise/graph.h"

namespace reprise::detail {

// Forward (again) or backward of one segment.
struct SegmentRun {
  std::uint32_t segment;
  bool backward;
};

// Backward ops of each segment. An op belongs to the earliest segment of which it, or an op before it, reads a value; a
// value that ends a segment counts as input of the next.
[[nodiscard]] std::vector<std::vector<OpId>> backward_by_segment(const Graph& step, const ForwardView& view,
                                                                 const CutChain& chain);
// Contributions to the gradients of a segment's nodes; seeds first.
[[nodiscard]] std::vector<std::vector<OpId>> backward_by_segment(const PapersStep& step, const CutChain& chain);

// The step's forward pass and the caller's op as they are; from the schedule's first backward run on, the schedule.
// What is kept follows from what is not run again: liveness frees the rest.
[[nodiscard]] std::vector<OpId> expand(const Graph& step, const ForwardView& view, const CutChain& chain,
                                       const std::vector<std::vector<OpId>>& backward,
                                       std::span<const SegmentRun> schedule);

}  // namespace reprise::detail
