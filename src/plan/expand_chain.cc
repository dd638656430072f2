#include "plan/expand_chain.h"

#include <algorithm>

namespace reprise::detail {
namespace {

// The segment whose backward pass reads the node, as input or inside.
std::uint32_t reading_segment(const CutChain& chain, NodeId v) {
  const std::uint32_t segment = chain.segment[v];
  const bool is_cut = segment < chain.cuts.size() && chain.cuts[segment] == v;
  return segment + (is_cut ? 1 : 0);
}

std::vector<std::vector<OpId>> ops_by_segment(const ForwardView& view, const CutChain& chain) {
  std::vector<std::vector<OpId>> result(chain.num_segments());
  for (std::size_t i = 0; i < view.node_of_op.size(); ++i) {
    const NodeId node = view.node_of_op[i];
    if (node != kNoNode) result[chain.segment[node]].push_back(op_id(i));
  }
  return result;
}

}  // namespace

std::vector<std::vector<OpId>> backward_by_segment(const Graph& step, const ForwardView& view, const CutChain& chain) {
  std::vector<std::vector<OpId>> result(std::max<std::size_t>(1, chain.num_segments()));
  auto segment = static_cast<std::uint32_t>(result.size() - 1);
  for (std::size_t i = index(step.caller_op()) + 1; i < step.num_ops(); ++i) {
    for (const ValueId v : step.inputs(op_id(i))) {
      const OpId maker = step.producer(v);
      const NodeId node = maker == kNoOp ? kNoNode : view.node_of_op[index(maker)];
      if (node != kNoNode) segment = std::min(segment, reading_segment(chain, node));
    }
    result[segment].push_back(op_id(i));
  }
  return result;
}

std::vector<std::vector<OpId>> backward_by_segment(const PapersStep& step, const CutChain& chain) {
  std::vector<std::vector<OpId>> result(std::max<std::size_t>(1, chain.num_segments()));
  for (const bool seeds : {true, false}) {
    for (const Contribution& c : step.backward) {
      if (c.seed == seeds) result[chain.segment[c.target]].push_back(c.op);
    }
  }
  return result;
}

std::vector<OpId> expand(const Graph& step, const ForwardView& view, const CutChain& chain,
                         const std::vector<std::vector<OpId>>& backward, std::span<const SegmentRun> schedule) {
  const std::vector<std::vector<OpId>> forward = ops_by_segment(view, chain);
  std::vector<OpId> runs;
  for (std::size_t i = 0; i <= index(step.caller_op()); ++i) runs.push_back(op_id(i));
  const auto first_backward = std::ranges::find_if(schedule, &SegmentRun::backward);
  for (auto run = first_backward; run != schedule.end(); ++run) {
    const std::vector<OpId>& ops = run->backward ? backward[run->segment] : forward[run->segment];
    runs.insert(runs.end(), ops.begin(), ops.end());
  }
  return runs;
}

}  // namespace reprise::detail
