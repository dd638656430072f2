#include "solve/problem.h"

#include "plan/expand.h"
#include "plan/expand_chain.h"
#include "plan/liveness.h"

namespace reprise::detail {

Problem::Problem(const Graph& graph, const Costs& costs) : graph_(graph), costs_(costs) {
  check_costs(graph, costs);
  if (graph.forward_only()) {
    papers_ = papers_step(graph, costs);
  } else {
    view_ = forward_view(graph, costs);
  }
}

Plan Problem::plan(const Blocks& blocks, bool keep_last, Expansion expansion) const {
  const std::vector<OpId> runs =
      papers_ ? expand(*papers_, blocks, keep_last) : expand(graph_, view_, blocks, keep_last);
  return expansion == Expansion::kLean ? plan(runs) : place_frees(step(), runs);
}

Plan Problem::plan(std::span<const OpId> runs) const { return place_frees(step(), without_dead_reruns(step(), runs)); }

std::vector<std::vector<OpId>> Problem::backward_by_stage(const CutChain& chain) const {
  return papers_ ? detail::backward_by_stage(*papers_, chain) : detail::backward_by_stage(graph_, view_, chain);
}

Blocks Problem::one_block() const {
  return {.block = std::vector<std::uint32_t>(view().num_nodes(), 0), .count = view().num_nodes() == 0 ? 0U : 1U};
}

}  // namespace reprise::detail
