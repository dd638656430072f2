#include "reprise/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "fixtures/naive_replay.h"
#include "fixtures/odd_plans.h"
#include "fixtures/odd_steps.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/validate.h"
#include "simulate/simulator.h"
#include "support/input_error.h"
#include "support/short_actions.h"
#include "support/small_tests.h"

namespace reprise {
namespace {

constexpr std::uint64_t kSeeds = test::kSmallTests ? 300 : 3000;

using test::c;
using test::c_in_place;
using test::f;

TEST(SimulateTest, AgreesWithTheNaiveReplayOnOddPlans) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto [graph, costs] = test::odd_step(seed);
    detail::Simulator simulator(graph, costs);
    for (std::uint64_t round = 0; round < 3; ++round) {
      const Plan plan = test::odd_plan(graph, seed + (round << 32U));
      const auto violation = validate(graph, plan);
      ASSERT_FALSE(violation) << violation->message << "\n"
                              << test::text_of(plan) << "\n"
                              << format_graph(graph, costs);
      const Timeline naive = test::NaiveReplay(graph, costs).run(plan);
      const Timeline line = timeline(graph, costs, plan);
      ASSERT_EQ(simulator.run(plan), naive.total) << test::text_of(plan) << "\n" << format_graph(graph, costs);
      ASSERT_EQ(simulate(graph, costs, plan), naive.total);
      ASSERT_EQ(line.total, naive.total);
      ASSERT_EQ(line.start_bytes, naive.start_bytes);
      ASSERT_EQ(line.during_bytes, naive.during_bytes);
      ASSERT_EQ(line.after_bytes, naive.after_bytes);
    }
  }
}

// A second copy of a live output is not listed in live_at_peak, so at such a peak the values there add up to less.
TEST(SimulateTest, LiveAtPeakAddsUpToThePeak) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto [graph, costs] = test::odd_step(seed);
    const Plan plan = test::odd_plan(graph, seed);
    const Timeline line = timeline(graph, costs, plan);
    std::int64_t bytes = 0;
    for (const ValueId v : line.live_at_peak) bytes += costs.value_bytes[index(v)];
    ASSERT_EQ(line.during_bytes[line.peak_action], line.total.peak_bytes);
    const Action& peak = plan.actions[line.peak_action];
    if (peak.computes()) bytes += costs.workspace_bytes[index(peak.op())];
    std::set<ValueId> made_before;
    for (std::size_t i = 0; i < line.peak_action; ++i) {
      if (!plan.actions[i].computes()) continue;
      for (const ValueId v : graph.outputs(plan.actions[i].op())) made_before.insert(v);
    }
    std::int64_t second_copies = 0;  // an upper bound on their bytes
    if (peak.computes()) {
      for (const ValueId v : graph.outputs(peak.op()))
        second_copies += made_before.contains(v) ? costs.value_bytes[index(v)] : 0;
    }
    ASSERT_LE(bytes, line.total.peak_bytes) << test::text_of(plan) << "\n" << format_graph(graph, costs);
    ASSERT_GE(bytes + second_copies, line.total.peak_bytes) << test::text_of(plan) << "\n"
                                                            << format_graph(graph, costs);
    ASSERT_TRUE(std::ranges::is_sorted(line.live_at_peak, std::ranges::greater{},
                                       [&](ValueId v) { return costs.value_bytes[index(v)]; }));
  }
}

// x (100 bytes) and a weight (10) exist at the start. Op 0 makes y (40 bytes; workspace 7, time 3), op 1 overwrites it
// with z (time 5), and then comes the caller's op.
CostedGraph three_ops() {
  GraphBuilder b;
  const ValueId x = b.arriving(100), w = b.resident(10), y = b.value(40), z = b.value(40);
  b.overwrite(z, y);
  b.output(z);
  b.op({.name = "conv", .time_ns = 3, .workspace_bytes = 7, .inputs = {x, w}, .outputs = {y}});
  b.op({.name = "relu_", .time_ns = 5, .inputs = {y}, .outputs = {z}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  return b.build();
}

struct Case {
  const char* what;
  std::vector<Action> actions;
  Simulation expected;
};

TEST(SimulateTest, CountsOutputsAndWorkspaceWhileInputsAreHeld) {
  const auto [graph, costs] = three_ops();
  const Case cases[] = {
      {"nothing runs", {}, {.peak_bytes = 110, .time_ns = 0, .recompute_ns = 0}},
      {"workspace is returned", {c(0)}, {.peak_bytes = 157, .time_ns = 3, .recompute_ns = 0}},
      {"in place takes nothing", {c(0), c_in_place(1)}, {.peak_bytes = 157, .time_ns = 8, .recompute_ns = 0}},
      {"a copy takes its size", {c(0), c(1)}, {.peak_bytes = 190, .time_ns = 8, .recompute_ns = 0}},
      {"freed in time", {c(0), f(0), c(1)}, {.peak_bytes = 157, .time_ns = 8, .recompute_ns = 0}},
      {"second copy for a moment", {c(0), c(0), c(0)}, {.peak_bytes = 197, .time_ns = 9, .recompute_ns = 6}},
      {"second copy is dropped", {c(0), c(0), c(1)}, {.peak_bytes = 197, .time_ns = 11, .recompute_ns = 3}},
      {"a new life after in place",
       {c(0), c_in_place(1), c(0), f(3), c_in_place(1)},
       {.peak_bytes = 197, .time_ns = 16, .recompute_ns = 8}},
  };
  for (const Case& example : cases) {
    EXPECT_EQ(simulate(graph, costs, {.actions = example.actions}), example.expected) << example.what;
    EXPECT_EQ(timeline(graph, costs, {.actions = example.actions}).total, example.expected) << example.what;
  }
}

TEST(SimulateTest, ASimulatorForgetsTheRunBefore) {
  const auto [graph, costs] = three_ops();
  detail::Simulator simulator(graph, costs);
  const Plan plan{.actions = {c(0), c_in_place(1), c(2), f(0)}};
  const Simulation first = simulator.run(plan);
  EXPECT_EQ(simulator.run(plan), first);
  EXPECT_EQ(first.recompute_ns, 0);
}

TEST(SimulateTest, RefusesMoreTimeThanFits) {
  GraphBuilder b;
  b.op({.name = "slow", .time_ns = std::int64_t{1} << 58, .inputs = {}, .outputs = {b.value(1)}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  const CostedGraph step = b.build();
  Plan plan{.actions = std::vector<Action>(31, c(0))};
  plan.actions.push_back(c(1));
  EXPECT_EQ(simulate(step.graph, step.costs, plan).time_ns, 31 * (std::int64_t{1} << 58));
  plan.actions.push_back(c(0));
  const std::string refusal = "the total time of the plan does not fit into 64 bits";
  EXPECT_EQ(input_error([&] { static_cast<void>(simulate(step.graph, step.costs, plan)); }), refusal);
  EXPECT_EQ(input_error([&] { static_cast<void>(timeline(step.graph, step.costs, plan)); }), refusal);
}

TEST(TimelineTest, NamesWhatIsLiveAtThePeak) {
  const auto [graph, costs] = three_ops();
  const Timeline line = timeline(graph, costs, {.actions = {c(0), c(1), f(2)}});
  EXPECT_EQ(line.start_bytes, 110);
  EXPECT_EQ(line.during_bytes, (std::vector<std::int64_t>{157, 190, 190}));
  EXPECT_EQ(line.after_bytes, (std::vector<std::int64_t>{150, 190, 150}));
  EXPECT_EQ(line.peak_action, 1U);
  EXPECT_EQ(line.live_at_peak, (std::vector<ValueId>{value_id(0), value_id(2), value_id(3), value_id(1)}));
}

TEST(TimelineTest, APeakAtTheStartHoldsWhatIsFreedFirst) {
  const auto [graph, costs] = three_ops();
  const Timeline line = timeline(graph, costs, {.actions = {f(0)}});
  EXPECT_EQ(line.total.peak_bytes, 110);
  EXPECT_EQ(line.peak_action, 0U);
  EXPECT_EQ(line.live_at_peak, (std::vector<ValueId>{value_id(0), value_id(1)}));
}

TEST(TimelineTest, AnEmptyPlanHoldsTheStart) {
  const auto [graph, costs] = three_ops();
  const Timeline line = timeline(graph, costs, {});
  EXPECT_EQ(line.total.peak_bytes, 110);
  EXPECT_TRUE(line.during_bytes.empty());
  EXPECT_EQ(line.live_at_peak, (std::vector<ValueId>{value_id(0), value_id(1)}));
}

}  // namespace
}  // namespace reprise
