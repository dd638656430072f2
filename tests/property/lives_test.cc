// The lives of a plan and its workspaces add up to what the simulator and a replay by brute force say, for odd plans of
// odd steps and for the planners' plans of random steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fixtures/naive_replay.h"
#include "fixtures/odd_plans.h"
#include "fixtures/odd_steps.h"
#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/random.h"
#include "support/random_step.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::uint64_t kSeeds = kSmallTests ? 150 : 1500;

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
  SCOPED_TRACE(text_of(plan) + '\n' + format_graph(graph, costs));
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

TEST(LivesTest, AddUpToTheSimulatedPeakOfOddPlans) {
  for (std::uint64_t seed = 0; seed < kSeeds && !testing::Test::HasFatalFailure(); ++seed) {
    const auto [graph, costs] = odd_step(seed);
    expect_same_memory(graph, costs, odd_plan(graph, seed));
  }
}

TEST(LivesTest, AddUpToTheSimulatedPeakOfPlannersPlans) {
  for (std::uint64_t seed = 0; seed < kSeeds / 10 && !testing::Test::HasFatalFailure(); ++seed) {
    Random random(seed);
    const StepOptions options{.forward_ops = random.between(2, 12), .backward_ops = random.between(1, 14)};
    const auto [graph, costs] = random_step(options, [&](std::int64_t bound) { return random.below(bound); });
    for (const char* planner : {"none", "chen", "lower-sets-approx", "revolve", "auto"}) {
      expect_same_memory(graph, costs,
                         solve(graph, costs, {.planner = planner, .knobs = knobs({.candidates = 4})}).plan);
    }
  }
}

// The lives of one value overlap only if the later one is marked as a second copy.
TEST(LivesTest, OfOneValueFollowEachOther) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto [graph, costs] = odd_step(seed);
    const Plan plan = odd_plan(graph, seed);
    std::vector<Lives> by_value(graph.num_values());
    for (const Life& life : lives(graph, plan)) {
      Lives& before = by_value[index(life.value)];
      if (life.second_copy) {
        ASSERT_FALSE(before.empty()) << text_of(plan);
        ASSERT_GE(before.back().last.value_or(plan.actions.size()), *life.first) << text_of(plan);
        continue;
      }
      ASSERT_TRUE(before.empty() || *before.back().last <= *life.first) << text_of(plan);
      before.push_back(life);
    }
  }
}

}  // namespace
}  // namespace reprise::test
