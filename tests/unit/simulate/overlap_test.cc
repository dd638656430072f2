// Collectives that go on beside the ops. The step is that of two_gathered_layers_step: gather0 0 and its wait 1, F0 2,
// gather1 3 and 4, F1 5, caller 6, B1 7, reduce1 8 and 9, B0 10, reduce0 11 and 12.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fixtures/naive_replay.h"
#include "fixtures/steps.h"
#include "reprise/io.h"
#include "reprise/lives.h"
#include "reprise/place.h"
#include "reprise/simulate.h"
#include "reprise/solve.h"
#include "reprise/validate.h"
#include "support/input_error.h"
#include "support/short_actions.h"

namespace reprise {
namespace {

using test::c;
using test::c_in_place;
using test::f;

// Everything kept, each collective waited for at once.
const Plan kAsCaptured{.actions = {c(0),          c_in_place(1),  f(4),  c(2),  c(3),  c_in_place(4), f(8),
                                   c(5),          c(6),           c(7),  f(10), f(6),  f(9),          c(8),
                                   c_in_place(9), f(15),          f(12), c(10), f(11), f(2),          f(5),
                                   c(11),         c_in_place(12), f(18), f(13)}};
// Both gathers begin before anything else, and B0 runs before the wait for reduce1.
const Plan kHoisted{.actions = {c(0),  c(3),           c_in_place(1), f(4),  c(2),          c_in_place(4), f(8),
                                c(5),  c(6),           c(7),          f(10), f(6),          f(9),          c(8),
                                c(10), f(11),          f(2),          f(5),  c_in_place(9), f(15),         f(12),
                                c(11), c_in_place(12), f(18),         f(13)}};

TEST(OverlapTest, CollectivesThatAreWaitedForAtOnceAddUp) {
  const auto [graph, costs] = test::two_gathered_layers_step();
  ASSERT_FALSE(validate(graph, kAsCaptured));
  const Simulation found = simulate(graph, costs, kAsCaptured);
  EXPECT_EQ(found.time_ns, 100);
  EXPECT_EQ(found.exposed_ns, 40);
  EXPECT_EQ(found.recompute_ns, 0);
  EXPECT_EQ(found.wait_ns, 0);
}

TEST(OverlapTest, CollectivesGoOnBesideTheOpsUntilTheyAreWaitedFor) {
  const auto [graph, costs] = test::two_gathered_layers_step();
  ASSERT_FALSE(validate(graph, kHoisted));
  const Timeline found = timeline(graph, costs, kHoisted);
  EXPECT_EQ(found.total.time_ns, 80);
  EXPECT_EQ(found.total.exposed_ns, 20);  // gather0 at the begin, reduce0 at the end
  // gather1 has to let gather0 pass.
  EXPECT_EQ(found.begin_ns[1], 10);
  EXPECT_EQ(found.end_ns[1], 20);
  EXPECT_EQ(found.begin_ns[5], 20);  // its wait
  const Timeline naive = test::NaiveReplay(graph, costs).run(kHoisted);
  EXPECT_EQ(found.during_bytes, naive.during_bytes);
  const Timeline before = timeline(graph, costs, kAsCaptured);
  EXPECT_EQ(found.during_bytes[2], before.during_bytes[1] + 105);  // gather1 is in flight during the first wait
}

TEST(OverlapTest, AGatherMayRunAgain) {
  const auto [graph, costs] = test::two_gathered_layers_step();
  Plan again = kAsCaptured;  // w0 is dropped after F0
  again.actions.insert(again.actions.begin() + 4, f(5));
  const auto before_b0 = std::ranges::find(again.actions, c(10));
  again.actions.insert(before_b0, {c(0), c_in_place(1), f(4)});
  ASSERT_FALSE(validate(graph, again)) << validate(graph, again)->message;
  const Simulation found = simulate(graph, costs, again);
  EXPECT_EQ(found.time_ns, 110);
  EXPECT_EQ(found.exposed_ns, 50);
  EXPECT_EQ(found.recompute_ns, 0);  // nothing is computed again on the device
}

TEST(OverlapTest, AWaitTakesOverWhatIsInFlight) {
  const auto [graph, costs] = test::two_gathered_layers_step();
  const Lives all = lives(graph, kHoisted);
  const auto weight = std::ranges::find(all, value_id(5), &Life::value);
  ASSERT_NE(weight, all.end());
  EXPECT_EQ(weight->took_over, value_id(3));
  const Placement placement = place(graph, costs, kHoisted, {.alignment_bytes = 1});
  EXPECT_FALSE(validate_addresses(graph, costs, kHoisted, placement));
}

TEST(OverlapTest, WhatIsInFlightIsLeftAlone) {
  const auto [graph, costs] = test::two_gathered_layers_step();
  const auto wrong = [&graph = graph](std::vector<Action> actions) {
    return validate(graph, {.actions = std::move(actions)}).value().message;
  };
  EXPECT_EQ(wrong({c(0), c(1)}), "action 1: computes op 1 'gather0_wait' into fresh memory, but waits run in place");
  EXPECT_EQ(wrong({c(0), c(0)}), "action 1: computes op 0 'gather0', whose last run has not been waited for");
  EXPECT_EQ(wrong({c(0), f(3)}), "action 1: frees value 3, which op 0 'gather0' has in flight");
  EXPECT_EQ(wrong({c(0), f(4)}), "action 1: frees value 4, which op 0 'gather0' has in flight");
  EXPECT_EQ(wrong({c(0), test::s(3)}), "action 1: stores value 3, which is in flight");
  EXPECT_EQ(wrong({c_in_place(1)}), "action 0: computes op 1 'gather0_wait', whose input value 3 is not live");
  EXPECT_EQ(wrong({c(0), c_in_place(1), c(2), c(3), c_in_place(4), c(5), c(0), c(6)}),
            "action 7: computes op 6 'caller' before the wait for op 0 'gather0'");
  EXPECT_EQ(wrong({c(0), c_in_place(1), c(0), c_in_place(1)}),
            "action 3: computes op 1 'gather0_wait' in place, but its output value 5 is still live");
  std::vector<Action> all(kAsCaptured.actions.begin(), kAsCaptured.actions.end() - 3);
  EXPECT_EQ(wrong(all), "step output value 19 is not live at the end");
  all = kAsCaptured.actions;
  all.insert(all.end() - 3, f(13));  // the operand of reduce0, before its wait
  EXPECT_EQ(wrong(all), "action 22: frees value 13, which op 11 'reduce0' has in flight");
  all = kAsCaptured.actions;
  all.push_back(c(8));
  EXPECT_EQ(wrong(all), "action 25: computes op 8 'reduce1', whose input value 12 is not live");
  all = kAsCaptured.actions;
  all.push_back(c(0));
  EXPECT_EQ(wrong(all), "op 0 'gather0' is never waited for");
}

TEST(OverlapTest, OperandsAreNotWrittenOverInFlight) {
  GraphBuilder b;
  const ValueId x = b.arriving(8), sum = b.value(8), arrived = b.value(8), y = b.value(8);
  b.overwrite(arrived, sum);
  b.overwrite(y, x);
  b.op({.name = "reduce", .once = true, .stream = 1, .inputs = {x}, .outputs = {sum}});
  b.op({.name = "relu_", .inputs = {x}, .outputs = {y}});
  b.op({.name = "wait", .once = true, .inputs = {sum, x}, .outputs = {arrived}});
  b.op({.name = "caller", .phase = Phase::kCaller});
  const CostedGraph step = b.build();
  EXPECT_EQ(validate(step.graph, {.actions = {c(0), c_in_place(1)}})->message,
            "action 1: computes op 1 'relu_' in place over value 0, which op 0 'reduce' has in flight");
  EXPECT_FALSE(validate(step.graph, {.actions = {c(0), c(1), c_in_place(2), c(3)}}));
  EXPECT_EQ(validate(step.graph, {.actions = {c(0), c(1), c_in_place(2), c(0), c_in_place(2), c(3)}})->message,
            "action 3: computes op 0 'reduce', which must not be repeated");
  EXPECT_EQ(validate(step.graph, {.actions = {c(1), c(3)}})->message, "op 0 'reduce' must run once and never does");
}

TEST(OverlapTest, APlanSaysInAFileForHowLongItWaits) {
  const auto [graph, costs] = test::two_gathered_layers_step();
  const PlanFile file{.graph = graph.name(),
                      .ops = graph.num_ops(),
                      .values = graph.num_values(),
                      .planner = "auto",
                      .budget_bytes = 0,
                      .simulation = simulate(graph, costs, kHoisted),
                      .plan = kHoisted};
  const std::string text = format_plan(file);
  EXPECT_NE(text.find("\"version\":5"), std::string::npos);
  EXPECT_EQ(parse_plan(text, "p.json"), file);
  std::string older = text;
  older.replace(older.find("\"version\":5"), 11, "\"version\":2");
  EXPECT_EQ(input_error([&] { (void)parse_plan(older, "p.json"); }),
            "p.json: version 2 has no key 'exposed_ns'; version 5 does");
  std::string without = text;
  without.erase(without.find(",\"exposed_ns\":20"), 16);
  EXPECT_EQ(input_error([&] { (void)parse_plan(without, "p.json"); }),
            "p.json: version 5 has exposed time, but there is no key 'exposed_ns' above 0");
}

TEST(OverlapTest, AWaitCostsNothingByItself) {
  auto [graph, costs] = test::two_gathered_layers_step();
  costs.time_ns[1] = 3;
  EXPECT_EQ(input_error([&, &graph = graph, &costs = costs] { (void)simulate(graph, costs, kHoisted); }),
            "op 1 'gather0_wait': a wait has no time and no workspace of its own; its start has them");
}

}  // namespace
}  // namespace reprise
