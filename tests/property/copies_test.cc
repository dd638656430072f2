// Odd plans that store and fetch: their clocks are those of a queue of events, their memory does not depend on the link
// and is that of a replay by brute force, and the lives of host copies are those that a naive replay finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "fixtures/event_replay.h"
#include "fixtures/naive_replay.h"
#include "property/plans_of_steps.h"

namespace reprise::test {
namespace {

TEST(CopiesTest, OddPlansAreLegalAndCopy) {
  int copying = 0;
  for_odd_copying_plans([&](const Graph& graph, const Costs&, const Plan& plan) {
    const auto violation = validate(graph, plan);
    ASSERT_FALSE(violation) << violation->message;
    copying += std::ranges::count_if(plan.actions, &Action::copies) > 3 ? 1 : 0;
  });
  EXPECT_GT(copying, static_cast<int>(kOddPlans / 2));
}

TEST(CopiesTest, TakeTheTimeOfAQueueOfEvents) {
  std::int64_t waiting = 0;
  for_odd_copying_plans([&](const Graph& graph, const Costs& costs, const Plan& plan) {
    const EventReplay events(graph, costs, plan);
    const Timeline found = timeline(graph, costs, plan);
    ASSERT_EQ(found.total.time_ns, events.time_ns());
    ASSERT_EQ(found.total.wait_ns, events.wait_ns());
    for (std::size_t i = 0; i < plan.actions.size(); ++i) {
      ASSERT_EQ(found.begin_ns[i], events.of_action(i).begin_ns) << "action " << i;
      ASSERT_EQ(found.end_ns[i], events.of_action(i).end_ns) << "action " << i;
    }
    waiting += found.total.wait_ns > 0 ? 1 : 0;
  });
  EXPECT_GT(waiting, static_cast<std::int64_t>(kOddPlans / 4));
}

TEST(CopiesTest, TakeTheSameMemoryOnEveryLink) {
  for_odd_copying_plans([](const Graph& graph, const Costs& costs, const Plan& plan) {
    const Timeline found = timeline(graph, costs, plan);
    Costs slow = costs;
    slow.link = Link{.down_bytes_per_s = 1'000, .up_bytes_per_s = 700, .latency_ns = 10, .both_ways = false};
    const Timeline slowly = timeline(graph, slow, plan);
    const Timeline naive = NaiveReplay(graph, costs).run(plan);
    ASSERT_EQ(found.during_bytes, slowly.during_bytes);
    ASSERT_EQ(found.after_bytes, slowly.after_bytes);
    ASSERT_EQ(found.during_bytes, naive.during_bytes);
    ASSERT_EQ(found.after_bytes, naive.after_bytes);
    ASSERT_EQ(found.total.host_peak_bytes, slowly.total.host_peak_bytes);
    ASSERT_LE(found.total.time_ns, slowly.total.time_ns);
  });
}

// Looks at each store by itself: the copy is there until the first action after its last fetch that reads or frees it.
std::optional<std::size_t> end_of_copy(const Graph& graph, const Plan& plan, ValueId value) {
  std::optional<std::size_t> end;
  bool coming = false;
  for (std::size_t at = 0; at < plan.actions.size(); ++at) {
    const Action action = plan.actions[at];
    if (action.fetches() && action.value() == value) {
      coming = true;
      end.reset();
    }
    const bool reads = action.computes() && std::ranges::count(graph.inputs(action.op()), value) > 0;
    const bool frees = action.frees() && action.value() == value;
    if (coming && (reads || frees)) {
      coming = false;
      end = at;
    }
  }
  return end;
}

TEST(CopiesTest, HaveTheHostLivesOfANaiveReplay) {
  for_odd_copying_plans([](const Graph& graph, const Costs& costs, const Plan& plan) {
    std::vector<HostLife> expected;
    std::vector<std::int64_t> bytes(plan.actions.size() + 1, 0);
    for (std::size_t at = 0; at < plan.actions.size(); ++at) {
      if (!plan.actions[at].stores()) continue;
      const ValueId v = plan.actions[at].value();
      expected.push_back({.value = v, .first = at, .last = end_of_copy(graph, plan, v)});
      const std::size_t end = expected.back().last.value_or(plan.actions.size());
      for (std::size_t i = at; i < end; ++i) bytes[i] += costs.value_bytes[index(v)];
    }
    ASSERT_EQ(host_lives(graph, plan), expected);
    ASSERT_EQ(simulate(graph, costs, plan).host_peak_bytes, *std::ranges::max_element(bytes));
  });
}

}  // namespace
}  // namespace reprise::test
