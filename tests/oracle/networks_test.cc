// Makes Chen's cuts on the seven networks of data/papers from the definitions and replays them. The core's formula,
// live peak and extra time must agree, on graphs of hundreds of nodes and with gradients that read their own outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "golden/papers_graph.h"
#include "oracle/replay.h"
#include "reprise/solve.h"

namespace reprise::test {
namespace {

Dag to_dag(const Graph& graph, const Costs& costs) {
  Dag dag;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    dag.preds.emplace_back();
    for (const ValueId v : graph.inputs(op_id(i))) dag.preds.back().push_back(static_cast<int>(index(v)));
    dag.time.push_back(costs.time_ns[i]);
    dag.bytes.push_back(costs.value_bytes[index(graph.outputs(op_id(i)).front())]);
    dag.reads.push_back(graph.backward_reads(op_id(i)));
  }
  return dag;
}

// {}, V, and the lower sets whose boundary is a single node, sorted by size. Since these graphs have one sink, each
// such set is a node with its ancestors.
std::vector<NodeSet> chen_candidates(const Dag& dag) {
  std::vector<NodeSet> candidates;
  for (const NodeSet& set : ancestor_family(dag)) {
    if (set.empty() || set.size() == dag.preds.size() || boundary(dag, set).size() == 1) candidates.push_back(set);
  }
  std::ranges::sort(candidates, {}, [&](const NodeSet& set) { return bytes_of(dag, set); });
  return candidates;
}

Sequence chen_sequence(const Dag& dag) {
  const std::vector<NodeSet> candidates = chen_candidates(dag);
  const auto root = static_cast<std::int64_t>(std::floor(std::sqrt(static_cast<double>(candidates.size()))));
  const std::int64_t step = dag.total_bytes() / std::max<std::int64_t>(1, root);
  std::int64_t threshold = step;
  Sequence sequence;
  for (const NodeSet& set : candidates) {
    const std::int64_t bytes = bytes_of(dag, set);
    if (set.size() != dag.preds.size() && bytes <= threshold) continue;
    sequence.push_back(set);
    while (threshold < bytes) threshold += step;
  }
  return sequence;
}

TEST(NetworksTest, ChensPlansEqualTheNaiveReplay) {
#ifdef REPRISE_SMALL_TESTS
  const std::vector<std::string> networks{"vgg19", "unet", "googlenet"};
#else
  const std::vector<std::string> networks{"vgg19",       "unet",      "resnet50", "resnet152",
                                          "densenet161", "googlenet", "pspnet"};
#endif
  for (const std::string& network : networks) {
    SCOPED_TRACE(network);
    const auto [graph, costs] = papers_graph(network);
    const Dag dag = to_dag(graph, costs);
    const Sequence sequence = chen_sequence(dag);
    const Cost cost = cost_of(dag, sequence);
    const ReplayResult live = replay(dag, sequence, Frees::kAfterLastTouch);
    const Solution found = solve(graph, costs, {.planner = "chen", .judge = Judge::kFormula});
    EXPECT_EQ(live.error, "");
    EXPECT_EQ(*found.formula, (Formula{cost.overhead, cost.peak(), cost.cached, sequence.size()}));
    EXPECT_EQ(found.simulation.peak_bytes, live.peak);
    EXPECT_EQ(found.simulation.recompute_ns, live.extra_time);
  }
}

}  // namespace
}  // namespace reprise::test
