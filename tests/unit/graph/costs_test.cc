#include "reprise/costs.h"

#include <gtest/gtest.h>

#include "fixtures/steps.h"
#include "reprise/graph_builder.h"
#include "reprise/reprise.h"
#include "support/input_error.h"

namespace reprise {
namespace {

std::string error(const Graph& graph, const Costs& costs) {
  return input_error([&] { check_costs(graph, costs); });
}

// A step in which y overwrites x.
CostedGraph in_place_step() {
  GraphBuilder b;
  const ValueId x = b.arriving(4), y = b.value(4);
  b.overwrite(y, x);
  b.op({.name = "relu_", .time_ns = 3, .inputs = {x}, .outputs = {y}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {y}});
  return b.build();
}

TEST(CostsTest, AreOneNumberPerOpAndValue) {
  const auto [graph, costs] = in_place_step();
  EXPECT_EQ(error(graph, costs), "(no error)");
  EXPECT_EQ(error(graph, {}), "time_ns: 0 numbers for 2 ops");
  EXPECT_EQ(error(graph, {.time_ns = {1, 2}, .workspace_bytes = {1}}), "workspace_bytes: 1 numbers for 2 ops");
  EXPECT_EQ(error(graph, {.time_ns = {1, 2}, .workspace_bytes = {0, 0}, .value_bytes = {1, 2, 3}}),
            "value_bytes: 3 numbers for 2 values");
}

TEST(CostsTest, AreNeitherNegativeNorTooLarge) {
  const auto [graph, costs] = in_place_step();
  EXPECT_EQ(error(graph, {.time_ns = {0, -1}, .workspace_bytes = {0, 0}, .value_bytes = {4, 4}}),
            "time_ns is negative: -1");
  EXPECT_EQ(error(graph, {.time_ns = {0, 0}, .workspace_bytes = {0, Costs::kMaxTotalBytes}, .value_bytes = {4, 4}}),
            "bytes: the sum over the graph is 2^59 or more");
}

TEST(CostsTest, WhatOverwritesHasTheSizeOfWhatItOverwrites) {
  const auto [graph, costs] = in_place_step();
  EXPECT_EQ(error(graph, {.time_ns = {1, 2}, .workspace_bytes = {0, 0}, .value_bytes = {4, 5}}),
            "op 0 'relu_': value 1 overwrites value 0, which has another size");
}

TEST(CostsTest, AreCheckedByWhoeverTakesThem) {
  const CostedGraph step = test::residual_block_step();
  const Plan plan = solve(step.graph, step.costs, {.planner = "none"}).plan;
  Costs costs = step.costs;
  costs.value_bytes.pop_back();
  const auto refuses = [&](const auto& call) { return input_error(call).starts_with("value_bytes: "); };
  EXPECT_TRUE(refuses([&] { static_cast<void>(solve(step.graph, costs, {})); }));
  EXPECT_TRUE(refuses([&] { static_cast<void>(curve(step.graph, costs, {})); }));
  EXPECT_TRUE(refuses([&] { static_cast<void>(simulate(step.graph, costs, plan)); }));
  EXPECT_TRUE(refuses([&] { static_cast<void>(timeline(step.graph, costs, plan)); }));
  EXPECT_TRUE(refuses([&] { static_cast<void>(lower_bound_ns(step.graph, costs, plan)); }));
  EXPECT_TRUE(refuses([&] { static_cast<void>(format_graph(step.graph, costs)); }));
  EXPECT_TRUE(refuses([&] { static_cast<void>(report_json({.graph = step.graph, .costs = costs, .plan = plan})); }));
  EXPECT_TRUE(refuses([&] { static_cast<void>(trace_json({.graph = step.graph, .costs = costs, .plan = plan})); }));
}

// One graph may have several costs, and a plan that is legal for one of them is legal for all.
TEST(CostsTest, OfTheSameGraphMayDiffer) {
  const auto [graph, costs] = test::residual_block_step();
  Costs twice = costs;
  for (auto* numbers : {&twice.time_ns, &twice.workspace_bytes, &twice.value_bytes}) {
    for (std::int64_t& number : *numbers) number *= 2;
  }
  const Solution found = solve(graph, costs, {.planner = "chen"});
  const Simulation doubled = simulate(graph, twice, found.plan);
  EXPECT_EQ(doubled.peak_bytes, 2 * found.simulation.peak_bytes);
  EXPECT_EQ(doubled.time_ns, 2 * found.simulation.time_ns);
}

}  // namespace
}  // namespace reprise
