#include "plan/expand_chain.h"

#include <algorithm>

namespace reprise::detail {
namespace {

// The stage whose backward pass reads the node, as input or inside.
std::uint32_t reading_stage(const CutChain& chain, NodeId v) {
  const std::uint32_t stage = chain.stage[v];
  const bool is_cut = stage < chain.cuts.size() && chain.cuts[stage] == v;
  return stage + (is_cut ? 1 : 0);
}

std::vector<std::vector<OpId>> ops_by_stage(const ForwardView& view, const CutChain& chain) {
  std::vector<std::vector<OpId>> result(chain.num_stages());
  for (std::size_t i = 0; i < view.node_of_op.size(); ++i) {
    const NodeId node = view.node_of_op[i];
    if (node != kNoNode) result[chain.stage[node]].push_back(op_id(i));
  }
  return result;
}

}  // namespace

std::vector<std::vector<OpId>> backward_by_stage(const Graph& step, const ForwardView& view, const CutChain& chain) {
  std::vector<std::vector<OpId>> result(std::max<std::size_t>(1, chain.num_stages()));
  auto stage = static_cast<std::uint32_t>(result.size() - 1);
  for (std::size_t i = index(step.caller_op()) + 1; i < step.num_ops(); ++i) {
    for (const ValueId v : step.inputs(op_id(i))) {
      const OpId maker = step.producer(v);
      const NodeId node = maker == kNoOp ? kNoNode : view.node_of_op[index(maker)];
      if (node != kNoNode) stage = std::min(stage, reading_stage(chain, node));
    }
    result[stage].push_back(op_id(i));
  }
  return result;
}

std::vector<std::vector<OpId>> backward_by_stage(const PapersStep& step, const CutChain& chain) {
  std::vector<std::vector<OpId>> result(std::max<std::size_t>(1, chain.num_stages()));
  for (const bool seeds : {true, false}) {
    for (const Contribution& c : step.backward) {
      if (c.seed == seeds) result[chain.stage[c.target]].push_back(c.op);
    }
  }
  return result;
}

std::vector<OpId> expand(const Graph& step, const ForwardView& view, const CutChain& chain,
                         const std::vector<std::vector<OpId>>& backward, std::span<const StageRun> schedule) {
  const std::vector<std::vector<OpId>> forward = ops_by_stage(view, chain);
  std::vector<OpId> runs;
  for (std::size_t i = 0; i <= index(step.caller_op()); ++i) runs.push_back(op_id(i));
  const auto first_backward = std::ranges::find_if(schedule, &StageRun::backward);
  for (auto run = first_backward; run != schedule.end(); ++run) {
    const std::vector<OpId>& ops = run->backward ? backward[run->stage] : forward[run->stage];
    runs.insert(runs.end(), ops.begin(), ops.end());
  }
  return runs;
}

}  // namespace reprise::detail
