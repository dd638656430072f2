#include "papers/papers_backward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fixtures/odd_steps.h"
#include "fixtures/steps.h"
#include "reprise/error.h"
#include "reprise/graph_builder.h"
#include "reprise/papers.h"
#include "reprise/solve.h"
#include "support/costed.h"
#include "support/input_error.h"

namespace reprise::detail {
namespace {

// A line for every op after the caller's, such as "gradient d -> c: 2 3 5 makes 6".
std::vector<std::string> backward_ops(const Graph& graph) {
  std::vector<std::string> lines;
  for (std::size_t i = index(graph.caller_op()) + 1; i < graph.num_ops(); ++i) {
    std::string line = graph.op_name(op_id(i)) + ":";
    for (const ValueId v : graph.inputs(op_id(i))) line.append(" ").append(std::to_string(index(v)));
    for (const ValueId v : graph.outputs(op_id(i))) {
      line.append(" makes ").append(std::to_string(index(v)));
      if (graph.overwrites(v) == kNoValue) continue;
      line.append(" over ").append(std::to_string(index(graph.overwrites(v))));
    }
    lines.push_back(line);
  }
  return lines;
}

using Lines = std::vector<std::string>;

// a feeds b and c, which feed d. Values: 0 x, 1 a, 2 b, 3 c, 4 d.
CostedGraph diamond() {
  GraphBuilder b("diamond");
  const ScopeId scope = b.scope("left");
  const ValueId x = b.arriving(100), a = b.value(10), left = b.value(20), right = b.value(30), d = b.value(40);
  b.op({.name = "a", .time_ns = 1, .inputs = {x}, .outputs = {a}});
  b.op({.name = "b",
        .scope = scope,
        .time_ns = 2,
        .backward_reads = BackwardReads::kOutputs,
        .inputs = {a},
        .outputs = {left}});
  b.op({.name = "c", .time_ns = 3, .backward_reads = BackwardReads::kBoth, .inputs = {a}, .outputs = {right}});
  b.op({.name = "d", .time_ns = 4, .workspace_bytes = 9, .inputs = {left, right}, .outputs = {d}});
  return b.build();
}

TEST(PapersBackwardTest, AddsOneOpPerEdgeThatReadsWhatWasDeclared) {
  const auto [graph, costs] = complete_backward(diamond());
  EXPECT_EQ(backward_ops(graph), (Lines{
                                     "seed d: makes 5",
                                     "gradient d -> c: 2 3 5 makes 6",
                                     "gradient d -> b: 2 3 5 makes 7",
                                     "gradient c -> a: 1 3 6 makes 8",
                                     "gradient b -> a: 2 7 8 makes 9 over 8",
                                     "gradient a: 0 9 makes 10",
                                 }));
  for (const auto& [value, bytes] : {std::pair{5, 40}, {6, 30}, {7, 20}, {8, 10}, {9, 10}, {10, 0}}) {
    EXPECT_EQ(costs.value_bytes[static_cast<std::size_t>(value)], bytes) << value;
  }
  EXPECT_TRUE(graph.is_output(value_id(10))) << "the end of backward is wanted";
  EXPECT_EQ(graph.step_outputs().size(), 1U);
}

TEST(PapersBackwardTest, KeepsForwardAsItWas) {
  const auto [forward, forward_costs] = diamond();
  const auto [graph, costs] = complete_backward(forward, forward_costs);
  EXPECT_EQ(graph.name(), "diamond");
  EXPECT_FALSE(graph.forward_only());
  EXPECT_EQ(index(graph.caller_op()), 4U);
  for (std::size_t i = 0; i < forward.num_ops(); ++i) {
    const OpId op = op_id(i);
    EXPECT_EQ(graph.op_name(op), forward.op_name(op));
    EXPECT_EQ(graph.scope_name(op), forward.scope_name(op));
    EXPECT_EQ(costs.time_ns[i], forward_costs.time_ns[i]);
    EXPECT_EQ(costs.workspace_bytes[i], forward_costs.workspace_bytes[i]);
    EXPECT_EQ(graph.backward_reads(op), forward.backward_reads(op));
    EXPECT_TRUE(std::ranges::equal(graph.inputs(op), forward.inputs(op)));
    EXPECT_TRUE(std::ranges::equal(graph.outputs(op), forward.outputs(op)));
  }
  for (std::size_t i = index(graph.caller_op()); i < graph.num_ops(); ++i) {
    EXPECT_EQ(costs.time_ns[i], 0) << "the papers count forward work only";
    EXPECT_EQ(costs.workspace_bytes[i], 0);
  }
}

TEST(PapersBackwardTest, DescribesItsOps) {
  const PapersStep step = papers_step(diamond());
  ASSERT_EQ(step.backward.size(), 6U);
  const auto expect = [&](std::size_t i, NodeId from, NodeId target, bool seed) {
    EXPECT_EQ(step.backward[i].op, op_id(5 + i));
    EXPECT_EQ(step.backward[i].from, from);
    EXPECT_EQ(step.backward[i].target, target);
    EXPECT_EQ(step.backward[i].seed, seed);
  };
  expect(0, 3, 3, true);
  expect(1, 3, 2, false);
  expect(2, 3, 1, false);
  expect(3, 2, 0, false);
  expect(4, 1, 0, false);
  expect(5, 0, 0, false);
  EXPECT_EQ(step.reads_own, (std::vector<std::uint8_t>{0, 1, 1, 0}));
}

// conv makes y and stats, and relu_ overwrites y with z. They are one node, whose gradient cannot read y.
TEST(PapersBackwardTest, ReadsNothingThatWasOverwritten) {
  for (const BackwardReads conv_reads : {BackwardReads::kInputs, BackwardReads::kOutputs, BackwardReads::kBoth}) {
    GraphBuilder b;
    const ValueId x = b.arriving(4), y = b.value(8), stats = b.value(2), z = b.value(8);
    b.overwrite(z, y);
    b.op({.name = "conv", .backward_reads = conv_reads, .inputs = {x}, .outputs = {y, stats}});
    b.op({.name = "relu_", .backward_reads = BackwardReads::kBoth, .inputs = {y}, .outputs = {z}});
    const auto [graph, costs] = complete_backward(b.build());
    const bool inputs = conv_reads != BackwardReads::kOutputs;
    const bool outputs = conv_reads != BackwardReads::kInputs;
    const std::string reads = std::string(inputs ? " 0" : "") + (outputs ? " 2" : "") + " 3 4";
    EXPECT_EQ(backward_ops(graph), (Lines{"seed relu_: makes 4", "gradient relu_:" + reads + " makes 5"}));
    EXPECT_EQ(costs.value_bytes[4], 10) << "of the node: z and stats";
  }
}

TEST(PapersBackwardTest, SinksAreSeededAndSourcesEnd) {
  GraphBuilder b;
  const ValueId p = b.value(1), q = b.value(2);
  b.op({.name = "p", .inputs = {}, .outputs = {p}});
  b.op({.name = "q", .inputs = {}, .outputs = {q}});
  EXPECT_EQ(backward_ops(complete_backward(b.build()).graph),
            (Lines{"seed q: makes 2", "gradient q: 2 makes 3", "seed p: makes 4", "gradient p: 4 makes 5"}));
}

TEST(PapersBackwardTest, OnceOpsHaveNoGradient) {
  GraphBuilder b;
  const ValueId state = b.value(7), mask = b.value(3);
  b.hold(state);
  b.op({.name = "get_state", .once = true, .inputs = {}, .outputs = {state}});
  b.op({.name = "dropout", .inputs = {state}, .outputs = {mask}});
  const auto [graph, costs] = complete_backward(b.build());
  EXPECT_TRUE(graph.once(op_id(0)));
  EXPECT_TRUE(graph.held(state));
  EXPECT_EQ(backward_ops(graph), (Lines{"seed dropout: makes 2", "gradient dropout: 0 2 makes 3"}));
}

TEST(PapersBackwardTest, AnEmptyGraphGetsACallersOp) {
  const auto [graph, costs] = complete_backward(GraphBuilder().build());
  EXPECT_EQ(graph.num_ops(), 1U);
  EXPECT_FALSE(graph.forward_only());
}

TEST(PapersBackwardTest, RefusesAStepThatHasABackward) {
  EXPECT_EQ(input_error([] { static_cast<void>(complete_backward(test::dropout_step())); }),
            "the graph has a backward pass already");
}

TEST(PapersBackwardTest, CompletesOddGraphs) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto [forward, costs] = test::odd_step(seed, {.forward_ops = 10, .forward_only = true});
    const PapersStep step = papers_step(forward, costs);
    std::size_t expected = 0;  // one op for each edge, each source and each sink
    for (NodeId v = 0; v < step.view.num_nodes(); ++v) {
      expected +=
          step.view.preds[v].size() + (step.view.preds[v].empty() ? 1 : 0) + (step.view.succs[v].empty() ? 1 : 0);
    }
    EXPECT_EQ(step.backward.size(), expected) << "seed " << seed;
    EXPECT_EQ(step.graph.num_ops(), forward.num_ops() + 1 + expected) << "seed " << seed;
  }
}

}  // namespace
}  // namespace reprise::detail
