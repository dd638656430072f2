// Odd plans with collectives on several communicators: legal, with the clocks of a queue of events, the memory of a
// replay by brute force, and the lives that add up to it; and no rule about what is in flight can be broken unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fixtures/event_replay.h"
#include "fixtures/naive_replay.h"
#include "property/plans_of_steps.h"

namespace reprise::test {
namespace {

TEST(OverlapTest, OddPlansAreLegalAndOverlap) {
  int rerun = 0, exposed = 0, hidden = 0;
  for_odd_overlapping_plans([&](const Graph& graph, const Costs& costs, const Plan& plan) {
    const auto violation = validate(graph, plan);
    ASSERT_FALSE(violation) << violation->message;
    std::int64_t communication_ns = 0;
    std::vector<int> runs(graph.num_ops(), 0);
    for (const Action action : plan.actions) {
      if (!action.computes() || !graph.is_start(action.op())) continue;
      communication_ns += costs.time_ns[index(action.op())];
      rerun += ++runs[index(action.op())] == 2 ? 1 : 0;
    }
    const std::int64_t exposed_ns = simulate(graph, costs, plan).exposed_ns;
    exposed += exposed_ns > 0 ? 1 : 0;
    hidden += exposed_ns < communication_ns ? 1 : 0;
  });
  EXPECT_GT(rerun, static_cast<int>(kOddPlans / 10));
  EXPECT_GT(exposed, static_cast<int>(kOddPlans / 2));
  EXPECT_GT(hidden, static_cast<int>(kOddPlans / 2));
}

TEST(OverlapTest, TakesTheTimeOfAQueueOfEvents) {
  for_odd_overlapping_plans([](const Graph& graph, const Costs& costs, const Plan& plan) {
    const EventReplay events(graph, costs, plan);
    const Timeline found = timeline(graph, costs, plan);
    ASSERT_EQ(found.total.time_ns, events.time_ns());
    ASSERT_EQ(found.total.wait_ns, events.wait_ns());
    ASSERT_EQ(found.total.exposed_ns, events.exposed_ns());
    ASSERT_EQ(simulate(graph, costs, plan), found.total);
    for (std::size_t i = 0; i < plan.actions.size(); ++i) {
      ASSERT_EQ(found.begin_ns[i], events.of_action(i).begin_ns) << "action " << i;
      ASSERT_EQ(found.end_ns[i], events.of_action(i).end_ns) << "action " << i;
    }
  });
}

TEST(OverlapTest, TimeIsWhatTheDeviceRunsAndWaits) {
  for_odd_overlapping_plans([](const Graph& graph, const Costs& costs, const Plan& plan) {
    std::int64_t first_ns = 0, again_ns = 0;
    std::vector<std::uint8_t> done(graph.num_ops(), 0);
    for (const Action action : plan.actions) {
      if (!action.computes() || graph.is_start(action.op())) continue;
      (std::exchange(done[index(action.op())], 1) != 0 ? again_ns : first_ns) += costs.time_ns[index(action.op())];
    }
    const Simulation found = simulate(graph, costs, plan);
    ASSERT_EQ(found.recompute_ns, again_ns);
    ASSERT_EQ(found.time_ns, first_ns + again_ns + found.wait_ns + found.exposed_ns);
  });
}

TEST(OverlapTest, TakesTheMemoryOfANaiveReplayHoweverLongCollectivesTake) {
  for_odd_overlapping_plans([](const Graph& graph, const Costs& costs, const Plan& plan) {
    const Timeline found = timeline(graph, costs, plan);
    const Timeline naive = NaiveReplay(graph, costs).run(plan);
    ASSERT_EQ(found.during_bytes, naive.during_bytes);
    ASSERT_EQ(found.after_bytes, naive.after_bytes);
    Costs slow = costs;
    for (std::size_t i = 0; i < graph.num_ops(); ++i) slow.time_ns[i] *= graph.is_start(op_id(i)) ? 100 : 1;
    ASSERT_EQ(timeline(graph, slow, plan).during_bytes, naive.during_bytes);
    ASSERT_LE(found.total.time_ns, simulate(graph, slow, plan).time_ns);
  });
}

// Nothing that is in flight may be freed before its wait, wherever that is tried.
TEST(OverlapTest, NothingInFlightCanBeFreed) {
  for_odd_overlapping_plans([](const Graph& graph, const Costs&, const Plan& plan) {
    for (std::size_t at = 0; at < plan.actions.size(); ++at) {
      const Action action = plan.actions[at];
      if (!action.computes() || !graph.is_start(action.op())) continue;
      Plan broken = plan;
      const ValueId result = graph.overwrites(graph.outputs(graph.partner(action.op()))[0]);
      broken.actions.insert(broken.actions.begin() + static_cast<std::ptrdiff_t>(at) + 1, Action::free(result));
      ASSERT_EQ(validate(graph, broken).value().action, at + 1);
      broken = plan;
      broken.actions.insert(broken.actions.begin() + static_cast<std::ptrdiff_t>(at) + 1, action);
      ASSERT_EQ(validate(graph, broken).value().action, at + 1);
    }
  });
}

TEST(OverlapTest, GraphsWithCommunicatorsComeBackFromAFile) {
  for_odd_overlapping_plans([](const Graph& graph, const Costs& costs, const Plan&) {
    Costs without = costs;
    without.link.reset();
    const std::string text = format_graph(graph, without);
    ASSERT_EQ(parse_graph(text, "text"), (CostedGraph{graph, without}));
  });
}

}  // namespace
}  // namespace reprise::test
