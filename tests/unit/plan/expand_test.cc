#include "plan/expand.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "fixtures/odd_plans.h"
#include "fixtures/odd_steps.h"
#include "fixtures/steps.h"
#include "plan/liveness.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "support/costed.h"
#include "support/small_tests.h"
#include "unit/papers/small_view.h"

namespace reprise::detail {
namespace {

constexpr std::uint64_t kSeeds = test::kSmallTests ? 200 : 3000;

std::string names(const Graph& graph, const std::vector<OpId>& runs) {
  std::string text;
  for (const OpId op : runs) text.append(text.empty() ? "" : " ").append(graph.op_name(op));
  return text;
}

// f0 -> f1 -> f2 -> f3, then the caller's op, then b3 .. b0, where b<i> reads the input of f<i>.
CostedGraph chain_step() {
  GraphBuilder b;
  const ValueId x = b.arriving(1);
  std::vector<ValueId> made{x};
  for (int i = 0; i < 4; ++i) {
    made.push_back(b.value(1));
    b.op({.name = "f" + std::to_string(i), .time_ns = 1, .inputs = {made[made.size() - 2]}, .outputs = {made.back()}});
  }
  ValueId gradient = b.value(1);
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {made.back()}, .outputs = {gradient}});
  for (std::size_t i = 4; i-- > 0;) {
    const ValueId next = b.value(1);
    b.op(
        {.name = "b" + std::to_string(i), .phase = Phase::kBackward, .inputs = {gradient, made[i]}, .outputs = {next}});
    gradient = next;
  }
  b.output(gradient);
  return b.build();
}

TEST(ExpandTest, RunsABlockAgainBeforeItIsMissed) {
  const auto [step, costs] = chain_step();
  const ForwardView view = forward_view(step, costs);
  const auto runs = [&](std::vector<std::uint32_t> block, std::uint32_t count, bool keep_last) {
    return names(step, expand(step, view, {.block = std::move(block), .count = count}, keep_last));
  };
  EXPECT_EQ(runs({0, 0, 0, 0}, 1, true), "f0 f1 f2 f3 caller b3 b2 b1 b0");
  EXPECT_EQ(runs({0, 0, 0, 0}, 1, false), "f0 f1 f2 f3 caller f0 f1 f2 f3 b3 b2 b1 b0");
  EXPECT_EQ(runs({0, 0, 1, 1}, 2, true), "f0 f1 f2 f3 caller b3 b2 f0 b1 b0");
  EXPECT_EQ(runs({0, 0, 1, 1}, 2, false), "f0 f1 f2 f3 caller f2 f3 b3 b2 f0 b1 b0");
  EXPECT_EQ(runs({0, 0, 0, 1}, 2, true), "f0 f1 f2 f3 caller b3 f0 f1 b2 b1 b0");
  EXPECT_EQ(runs({0, 1, 2, 3}, 4, false), "f0 f1 f2 f3 caller b3 b2 b1 b0") << "f3's own value is not missed";
}

TEST(ExpandTest, LeanRunsLeaveOutWhatNobodyReads) {
  const auto [step, costs] = chain_step();
  const Blocks one{.block = {0, 0, 0, 0}, .count = 1};
  const std::vector<OpId> runs = expand(step, forward_view(step, costs), one, false);
  EXPECT_EQ(names(step, without_dead_reruns(step, runs)), "f0 f1 f2 f3 caller f0 f1 f2 b3 b2 b1 b0");
}

// The caller has held logits and aux since they were made, so making them again would be of no use.
TEST(ExpandTest, LeanRunsDoNotMakeHeldValuesAgain) {
  const auto [step, costs] = test::held_seeds_step();
  const Blocks one{.block = {0, 0, 0}, .count = 1};
  const std::vector<OpId> runs = expand(step, forward_view(step, costs), one, false);
  EXPECT_EQ(names(step, without_dead_reruns(step, runs)),
            "trunk head aux caller trunk aux_backward head_backward accumulate trunk_backward");
}

TEST(ExpandTest, OnceOpsAndNodesInPlaceStayWhole) {
  const auto [step, costs] = test::residual_block_step();
  const ForwardView view =
      forward_view(step, costs);  // conv | bn add_ relu_ | dropout1 | linear | dropout2 | max | loss
  const Blocks blocks{.block = {0, 0, 0, 1, 1, 1, 1}, .count = 2};
  EXPECT_EQ(names(step, expand(step, view, blocks, true)),
            "conv bn update_stats count add_ relu_ get_state1 dropout1 linear get_state2 dropout2 max loss caller "
            "loss_backward max_backward dropout2_backward linear_backward accumulate_w2 dropout1_backward "
            "conv bn add_ relu_ relu_backward bn_backward conv_backward accumulate_x")
      << "dropout1 is cached whole, with its mask";
}

struct Expanded {
  Graph graph;
  Costs costs;
  std::vector<OpId> runs;
  std::vector<OpId> lean;
};

Expanded expand_any(std::uint64_t seed, bool forward_only, bool keep_last) {
  const auto [graph, costs] =
      test::odd_step(seed, {.forward_ops = 10, .backward_ops = 8, .forward_only = forward_only});
  if (forward_only) {
    const PapersStep step = papers_step(graph, costs);
    const std::vector<OpId> runs = expand(step, test::random_blocks(seed, step.view), keep_last);
    return {.graph = step.graph, .costs = step.costs, .runs = runs, .lean = without_dead_reruns(step.graph, runs)};
  }
  const ForwardView view = forward_view(graph, costs);
  const std::vector<OpId> runs = expand(graph, view, test::random_blocks(seed, view), keep_last);
  return {.graph = graph, .costs = costs, .runs = runs, .lean = without_dead_reruns(graph, runs)};
}

std::map<OpId, int> counts(const std::vector<OpId>& runs) {
  std::map<OpId, int> result;
  for (const OpId op : runs) ++result[op];
  return result;
}

TEST(ExpandTest, AnyBlocksOfAnyStepGiveALegalPlan) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const bool forward_only = seed % 2 == 1;
    const Expanded expanded = expand_any(seed, forward_only, /*keep_last=*/seed % 4 < 2);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + names(expanded.graph, expanded.runs) + "\n" +
                 format_graph(expanded.graph, expanded.costs));
    for (const auto& runs : {expanded.runs, expanded.lean}) {
      const auto violation = validate(expanded.graph, place_frees(expanded.graph, runs));
      ASSERT_FALSE(violation) << violation->message;
    }
    std::map<OpId, int> lean = counts(expanded.lean);
    for (const auto& [op, count] : counts(expanded.runs)) {
      ASSERT_GE(lean[op], 1) << "a first run was left out";
      ASSERT_LE(lean[op], count);
      ASSERT_TRUE(forward_only || count <= 2);
    }
    ASSERT_EQ(lean.size(), expanded.graph.num_ops());
    ASSERT_LE(simulate(expanded.graph, expanded.costs, place_frees(expanded.graph, expanded.lean)).peak_bytes,
              simulate(expanded.graph, expanded.costs, place_frees(expanded.graph, expanded.runs)).peak_bytes);
  }
}

// The papers' schedule on the diamond a -> {b, c} -> d with the blocks {a} {b} {c, d}: what d contributes to the
// gradient of b runs in the block pass of b. It also reads c, which is live since the block pass before.
TEST(PapersExpandTest, GradientsRunInTheBlockPassOfTheirTarget) {
  GraphBuilder b;
  const ValueId a = b.value(1), left = b.value(1), right = b.value(1), d = b.value(1);
  b.op({.name = "a", .inputs = {}, .outputs = {a}});
  b.op({.name = "b", .inputs = {a}, .outputs = {left}});
  b.op({.name = "c", .inputs = {a}, .outputs = {right}});
  b.op({.name = "d", .inputs = {left, right}, .outputs = {d}});
  const PapersStep step = papers_step(b.build());
  EXPECT_EQ(names(step.graph, expand(step, {.block = {0, 1, 2, 2}, .count = 3}, false)),
            "a b c d caller c d seed d gradient d -> c gradient d -> b gradient c -> a gradient b -> a gradient a");
  EXPECT_EQ(names(step.graph, expand(step, {.block = {0, 0, 0, 0}, .count = 1}, true)),
            "a b c d caller seed d gradient d -> c gradient d -> b gradient c -> a gradient b -> a gradient a");
}

}  // namespace
}  // namespace reprise::detail
