// The lives of a plan and its workspaces add up to what the simulator and a replay by brute force say, for odd plans of
// odd steps and for the planners' plans of random steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fixtures/naive_replay.h"
#include "property/plans_of_steps.h"

namespace reprise::test {
namespace {

// The bytes of all values that are live while action `at` runs. A value that takes over the memory of another one does
// not count until the action is done.
std::int64_t bytes_during(const Lives& lives, const Costs& costs, std::size_t at) {
  std::int64_t bytes = 0;
  for (const Life& life : lives) {
    const bool begun = !life.first || *life.first < at || (*life.first == at && life.took_over == kNoValue);
    if (begun && (!life.last || *life.last >= at)) bytes += costs.value_bytes[index(life.value)];
  }
  return bytes;
}

void expect_same_memory(const Graph& graph, const Costs& costs, const Plan& plan) {
  const Lives all = lives(graph, plan);
  const Timeline naive = NaiveReplay(graph, costs).run(plan);
  std::int64_t peak = naive.start_bytes;
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    const Action action = plan.actions[i];
    const std::int64_t workspace = action.computes() ? costs.workspace_bytes[index(action.op())] : 0;
    const std::int64_t bytes = bytes_during(all, costs, i) + workspace;
    ASSERT_EQ(bytes, naive.during_bytes[i]) << "action " << i;
    peak = std::max(peak, bytes);
  }
  ASSERT_EQ(peak, simulate(graph, costs, plan).peak_bytes);
}

TEST(LivesTest, AddUpToTheSimulatedPeakOfOddPlans) { for_odd_plans(expect_same_memory); }
TEST(LivesTest, AddUpToTheSimulatedPeakOfPlannersPlans) { for_planners_plans(expect_same_memory); }

// The lives of one value overlap only if the later one is marked as a second copy.
TEST(LivesTest, OfOneValueFollowEachOther) {
  for_odd_plans([](const Graph& graph, const Costs&, const Plan& plan) {
    std::vector<Lives> by_value(graph.num_values());
    for (const Life& life : lives(graph, plan)) {
      Lives& before = by_value[index(life.value)];
      if (life.second_copy) {
        ASSERT_FALSE(before.empty());
        ASSERT_GE(before.back().last.value_or(plan.actions.size()), *life.first);
        continue;
      }
      ASSERT_TRUE(before.empty() || *before.back().last <= *life.first);
      before.push_back(life);
    }
  });
}

}  // namespace
}  // namespace reprise::test
