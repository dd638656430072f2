#include "papers/forward_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/odd_steps.h"
#include "fixtures/steps.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "support/costed.h"

namespace reprise::detail {
namespace {

// The ops of each node, with the nodes in order: "conv | bn relu_".
std::string groups(const Graph& graph, const ForwardView& view) {
  std::string text;
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    if (v > 0) text += " |";
    for (const OpId op : view.ops[v]) text.append(text.empty() ? "" : " ").append(graph.op_name(op));
  }
  return text;
}

std::string groups(const CostedGraph& step) { return groups(step.graph, forward_view(step)); }

// All edges: "0>1 0>2".
std::string edges(const ForwardView& view) {
  std::string text;
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    for (const NodeId w : view.succs[v]) {
      text.append(text.empty() ? "" : " ").append(std::to_string(v)).append(">").append(std::to_string(w));
    }
  }
  return text;
}

TEST(ForwardViewTest, InPlaceChainsAreOneNode) {
  const auto [graph, costs] = test::in_place_residual_step();
  const ForwardView view = forward_view(graph, costs);
  EXPECT_EQ(groups(graph, view), "conv0 relu0_ | conv1 | bn add_ relu_ | loss");
  EXPECT_EQ(edges(view), "0>1 0>2 1>2 2>3");
  EXPECT_EQ(view.time, (std::vector<std::int64_t>{22, 40, 10, 2}));
  EXPECT_EQ(view.bytes, (std::vector<std::int64_t>{500, 500, 540, 4})) << "versions of one storage count once";
  EXPECT_EQ(view.total_time(), 74);
  EXPECT_EQ(view.total_bytes(), 1544);
  EXPECT_EQ(view.node_of_op[0], 0U);
  EXPECT_EQ(view.node_of_op[5], 2U);
  EXPECT_EQ(view.node_of_op[index(graph.caller_op())], kNoNode);
  EXPECT_EQ(view.node_of_op.back(), kNoNode);
}

TEST(ForwardViewTest, OnceOpsAreNoNodes) {
  EXPECT_EQ(groups(test::batch_norm_step()), "conv | batch_norm | loss");
  EXPECT_EQ(groups(test::dropout_step()), "linear1 | dropout1 | linear2 | dropout2 | loss");
  EXPECT_EQ(edges(forward_view(test::dropout_step())), "0>1 1>2 2>3 3>4") << "the token's way is not an edge";
  EXPECT_EQ(groups(test::residual_block_step()), "conv | bn add_ relu_ | dropout1 | linear | dropout2 | max | loss");
}

TEST(ForwardViewTest, OutputsOfOneOpAreOneTensor) {
  const ForwardView view = forward_view(test::multi_output_step());
  EXPECT_EQ(view.bytes, (std::vector<std::int64_t>{800, 600, 200, 244, 4}));
}

TEST(ForwardViewTest, SeveralReadsAreOneEdge) {
  EXPECT_EQ(edges(forward_view(test::view_chain_step())), "0>1 0>3 1>2 2>3 3>4 4>5 5>6");
  GraphBuilder b;
  const ValueId p = b.value(1), q = b.value(1), r = b.value(1);
  b.op({.name = "two", .inputs = {}, .outputs = {p, q}});
  b.op({.name = "both", .inputs = {p, q}, .outputs = {r}});
  EXPECT_EQ(edges(forward_view(b.build())), "0>1");
}

// conv makes y and a second output, and relu_ overwrites y with z. What a test adds decides whether they are one node.
struct Chain {
  GraphBuilder b;
  ValueId x = b.arriving(8), y = b.value(8), stats = b.value(3), z = b.value(8);
  ValueId extra = b.value(8);

  Chain() {
    b.overwrite(z, y);
    b.op({.name = "conv", .inputs = {x}, .outputs = {y, stats}});
  }
  void relu() { b.op({.name = "relu_", .inputs = {y}, .outputs = {z}}); }
  void add_extra(const char* name, ValueId input, bool once = false) {
    b.op({.name = name, .once = once, .inputs = {input}, .outputs = {extra}});
  }
  std::string end(std::vector<ValueId> backward_inputs = {}) {
    b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
    b.op({.name = "back", .phase = Phase::kBackward, .inputs = std::move(backward_inputs)});
    return groups(b.build());
  }
};

TEST(ForwardViewTest, JoinsOnlyWhatDiesThere) {
  const auto with = [](const std::function<std::string(Chain&)>& rest) {
    Chain chain;
    return rest(chain);
  };
  const char* const joined = "conv relu_ | extra";
  const char* const apart = "conv | relu_ | extra";
  EXPECT_EQ(with([](Chain& c) { return c.relu(), c.add_extra("extra", c.z), c.end({c.z}); }), joined);
  EXPECT_EQ(with([](Chain& c) {
              return c.relu(), c.add_extra("extra", c.x), c.end({c.z, c.stats});
            }),
            joined)
      << "backward may read the node's other outputs";
  EXPECT_EQ(with([](Chain& c) { return c.relu(), c.add_extra("extra", c.z), c.end({c.y}); }), apart)
      << "backward reads the old version";
  EXPECT_EQ(with([](Chain& c) { return c.relu(), c.add_extra("extra", c.y), c.end(); }), apart)
      << "another forward op reads the old version later";
  EXPECT_EQ(with([](Chain& c) { return c.add_extra("extra", c.y), c.relu(), c.end(); }), "conv | extra | relu_")
      << "or earlier";
  EXPECT_EQ(with([](Chain& c) { return c.relu(), c.add_extra("extra", c.stats), c.end(); }), apart)
      << "another op reads from the node";
  EXPECT_EQ(with([](Chain& c) { return c.b.output(c.y), c.relu(), c.add_extra("extra", c.z), c.end(); }), apart)
      << "the old version is a step output";
  EXPECT_EQ(with([](Chain& c) { return c.b.hold(c.y), c.b.output(c.z), c.relu(), c.add_extra("extra", c.z), c.end(); }),
            apart)
      << "the old version is the caller's";
  EXPECT_EQ(with([](Chain& c) { return c.add_extra("once", c.y, /*once=*/true), c.relu(), c.end(); }), "conv relu_")
      << "an op that runs once does not mind";
}

TEST(ForwardViewTest, TheCallersReadKeepsAVersion) {
  Chain chain;
  chain.relu();
  chain.add_extra("extra", chain.z);
  chain.b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {chain.y}, .outputs = {}});
  EXPECT_EQ(groups(chain.b.build()), "conv | relu_ | extra");
}

TEST(ForwardViewTest, WhatAOnceOpMadeIsNotJoined) {
  GraphBuilder b;
  const ValueId y = b.value(1), z = b.value(1), arrived = b.arriving(1), over = b.value(1);
  b.overwrite(z, y);
  b.overwrite(over, arrived);
  b.op({.name = "once", .once = true, .inputs = {}, .outputs = {y}});
  b.op({.name = "relu_", .inputs = {y}, .outputs = {z}});
  b.op({.name = "mul_", .inputs = {arrived}, .outputs = {over}});
  const CostedGraph step = b.build();
  EXPECT_EQ(groups(step), "relu_ | mul_");
  EXPECT_EQ(forward_view(step).bytes, (std::vector<std::int64_t>{1, 1}));
}

TEST(ForwardViewTest, TwoVersionsOfOneNodeJoinOneOp) {
  GraphBuilder b;
  const ValueId p = b.value(5), q = b.value(7), new_p = b.value(5), new_q = b.value(7);
  b.overwrite(new_p, p);
  b.overwrite(new_q, q);
  b.op({.name = "split", .inputs = {}, .outputs = {p, q}});
  b.op({.name = "rotate_", .inputs = {p, q}, .outputs = {new_p, new_q}});
  const CostedGraph step = b.build();
  EXPECT_EQ(groups(step), "split rotate_");
  EXPECT_EQ(forward_view(step).bytes, (std::vector<std::int64_t>{12}));
}

TEST(ForwardViewTest, AnOpMayJoinTwoNodes) {
  GraphBuilder b;
  const ValueId p = b.value(5), q = b.value(7), new_p = b.value(5), new_q = b.value(7);
  b.overwrite(new_p, p);
  b.overwrite(new_q, q);
  b.op({.name = "left", .time_ns = 1, .inputs = {}, .outputs = {p}});
  b.op({.name = "right", .time_ns = 2, .inputs = {}, .outputs = {q}});
  b.op({.name = "rotate_", .time_ns = 4, .inputs = {p, q}, .outputs = {new_p, new_q}});
  const CostedGraph step = b.build();
  EXPECT_EQ(groups(step), "left right rotate_");
  EXPECT_EQ(forward_view(step).time, (std::vector<std::int64_t>{7}));
}

TEST(ForwardViewTest, AGraphWithoutForwardIsEmpty) {
  GraphBuilder b;
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  const ForwardView view = forward_view(b.build());
  EXPECT_EQ(view.num_nodes(), 0U);
  EXPECT_EQ(view.total_time(), 0);
  EXPECT_EQ(view.preds.rows(), 0U);
}

// What planners expect of every view, on steps that use everything a graph allows.
TEST(ForwardViewTest, IsAlwaysAGraphInTopologicalOrder) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const auto [graph, costs] = test::odd_step(seed, {.forward_ops = 12, .backward_ops = 6});
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + format_graph(graph, costs));
    const ForwardView view = forward_view(graph, costs);
    std::int64_t time = 0;
    for (std::size_t i = 0; i < graph.num_ops(); ++i) {
      const bool node = graph.phase(op_id(i)) == Phase::kForward && !graph.once(op_id(i));
      ASSERT_EQ(view.node_of_op[i] != kNoNode, node);
      time += node ? costs.time_ns[i] : 0;
    }
    ASSERT_EQ(view.total_time(), time);
    for (NodeId v = 0; v < view.num_nodes(); ++v) {
      ASSERT_GE(view.bytes[v], 0);
      ASSERT_TRUE(std::ranges::is_sorted(view.ops[v]));
      ASSERT_TRUE(std::ranges::is_sorted(view.preds[v]));
      ASSERT_TRUE(std::ranges::adjacent_find(view.preds[v]) == view.preds[v].end()) << "edges are distinct";
      for (const NodeId p : view.preds[v]) {
        ASSERT_LT(p, v);
        ASSERT_EQ(std::ranges::count(view.succs[p], v), 1);
      }
      for (const NodeId w : view.succs[v]) ASSERT_EQ(std::ranges::count(view.preds[w], v), 1);
      for (const OpId op : view.ops[v]) ASSERT_EQ(view.node_of_op[index(op)], v);
    }
  }
}

TEST(CachedNodesTest, AreThoseWithASuccessorInALaterBlock) {
  const ForwardView view = forward_view(test::in_place_residual_step());  // 0>1 0>2 1>2 2>3
  using Bytes = std::vector<std::uint8_t>;
  EXPECT_EQ(cached_nodes(view, {.block = {0, 0, 0, 0}, .count = 1}), (Bytes{0, 0, 0, 0}));
  EXPECT_EQ(cached_nodes(view, {.block = {0, 0, 1, 1}, .count = 2}), (Bytes{1, 1, 0, 0}));
  EXPECT_EQ(cached_nodes(view, {.block = {0, 1, 1, 2}, .count = 3}), (Bytes{1, 0, 1, 0}));
}

}  // namespace
}  // namespace reprise::detail
