// From the papers' answers (blocks of forward nodes) to runs of ops on a real step.
#pragma once

#include <span>
#include <vector>

#include "papers/forward_view.h"
#include "papers/papers_backward.h"
#include "reprise/graph.h"

namespace reprise::detail {

// A step with its own backward ops: forward as captured, the caller's op, then the backward ops as captured. Before the
// first backward op that lacks a value of a block, the block's forgotten nodes run again. Cached nodes are never rerun;
// with `keep_last`, neither are those of the last block.
[[nodiscard]] std::vector<OpId> expand(const Graph& step, const ForwardView& view, const Blocks& blocks,
                                       bool keep_last);

// The papers' schedule: forward goes block by block, and so does backward, from the last block; the contributions to a
// node's gradient run in the pass of its block. An op whose gradient reads its own output, which was dropped with an
// earlier block pass, runs once more.
[[nodiscard]] std::vector<OpId> expand(const PapersStep& step, const Blocks& blocks, bool keep_last);

// Leaves out reruns whose results nobody reads. First runs stay where the program has them.
[[nodiscard]] std::vector<OpId> without_dead_reruns(const Graph& graph, std::span<const OpId> runs);

}  // namespace reprise::detail
