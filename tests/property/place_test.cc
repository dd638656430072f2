// Addresses of odd plans of odd steps and of planners' plans of random ones: they hold before the validator, which
// notices when they are changed, and they are the same the second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fixtures/naive_replay.h"
#include "place/requests.h"
#include "property/plans_of_steps.h"

namespace reprise::test {
namespace {

void expect_good_addresses(const Graph& graph, const Costs& costs, const Plan& plan) {
  for (const bool on_top : {false, true}) {
    const PlaceOptions options{.alignment_bytes = 4, .outliving_on_top = on_top};
    const Placement found = place(graph, costs, plan, options);
    ASSERT_EQ(validate_addresses(graph, costs, plan, found), std::nullopt);
    ASSERT_GE(found.arena_bytes, found.load_bytes);
    ASSERT_EQ(place(graph, costs, plan, options), found);
  }
}

bool second_copy_of_held(const Graph& graph, const Plan& plan) {
  return std::ranges::any_of(lives(graph, plan),
                             [&](const Life& life) { return life.second_copy && graph.held(life.value); });
}

TEST(PlaceTest, AddressesOfOddPlansAreGood) { for_odd_plans(expect_good_addresses); }
TEST(PlaceTest, AddressesOfPlannersPlansAreGood) { for_planners_plans(expect_good_addresses); }

// What lies outside the arena, and so does everything else when there is no request for it: counted run by run.
std::int64_t naive_bytes_outside(const Graph& graph, const Costs& costs, const Plan& plan) {
  const Timeline naive = NaiveReplay(graph, costs).run(plan);
  const std::vector<detail::Request> asked = detail::requests(graph, costs, plan);
  std::int64_t most = naive.start_bytes;
  for (std::size_t at = 0; at < plan.actions.size(); ++at) {
    if (!plan.actions[at].computes()) continue;
    std::int64_t outside = naive.during_bytes[at];
    for (const detail::Request& request : asked) {
      if (request.buffer.begin <= at && (at < request.buffer.end || request.buffer.outlives)) {
        outside -= request.buffer.bytes;
      }
    }
    most = std::max(most, outside);
  }
  return most;
}

TEST(PlaceTest, WhatLiesOutsideIsTheRest) {
  for_odd_plans([](const Graph& graph, const Costs& costs, const Plan& plan) {
    ASSERT_EQ(bytes_outside(graph, costs, plan), naive_bytes_outside(graph, costs, plan));
    ASSERT_LE(bytes_outside(graph, costs, plan), simulate(graph, costs, plan).peak_bytes);
  });
}

// Budgets between the smallest and what the step takes as it is, in arenas whose alignment makes them too large for
// many of the fastest plans.
TEST(PlaceTest, AnArenaWithinTheBudgetIsTheFastestPlansIfItFits) {
  std::size_t at_once = 0, later = 0, never = 0;
  for (std::uint64_t seed = 0; seed < kRandomSteps && !testing::Test::HasFatalFailure(); seed += 3) {
    const auto [graph, costs] = some_random_step(seed);
    const std::int64_t smallest = solve(graph, costs, {.planner = "auto"}).budget_bytes;
    const std::int64_t plain = solve(graph, costs, {.planner = "none"}).budget_bytes;
    for (const std::int64_t budget : {smallest, (smallest + plain) / 2, plain, 2 * plain}) {
      SolveOptions options{.budget_bytes = budget, .addresses = PlaceOptions{.alignment_bytes = 4}};
      const Solution fastest = solve(graph, costs, options);
      const std::int64_t taken = fastest.placement->arena_bytes + naive_bytes_outside(graph, costs, fastest.plan);
      options.arena_within_budget = true;
      const Solution found = solve(graph, costs, options);
      ASSERT_EQ(solve(graph, costs, options).plan, found.plan) << "seed " << seed;
      ASSERT_LE(found.simulation.peak_bytes, budget);
      ASSERT_EQ(found.stats.arenas == 1 && found.placement, taken <= budget) << "seed " << seed;
      ASSERT_LE(found.stats.arenas, 24U);
      if (taken <= budget) {
        ASSERT_EQ(found.plan, fastest.plan);
        ++at_once;
      } else if (found.placement) {
        ASSERT_EQ(validate_addresses(graph, costs, found.plan, *found.placement), std::nullopt);
        ASSERT_LE(found.placement->arena_bytes + naive_bytes_outside(graph, costs, found.plan), budget);
        ++later;
      } else {
        ASSERT_NE(found.message.find("no arena that was tried fits"), std::string::npos) << found.message;
        ASSERT_LE(found.simulation.time_ns, fastest.simulation.time_ns);
        ++never;
      }
    }
  }
  RecordProperty("at_once", static_cast<int>(at_once));
  RecordProperty("later", static_cast<int>(later));
  RecordProperty("never", static_cast<int>(never));
  EXPECT_GT(at_once, 0U);
  EXPECT_TRUE(later > 0 || kSmallTests);
  EXPECT_GT(never, 0U);
}

// Where versions of one storage lie either all outside or all inside, it can be told value by value; without the bytes
// of what lies outside, the simulator's peak is the load.
TEST(PlaceTest, TheLoadIsThePeakOfWhatLiesInside) {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < kOddPlans; ++seed) {
    const auto [graph, costs] = odd_step(seed);
    const Plan plan = odd_plan(graph, seed);
    const auto outside = [&graph = graph](ValueId v) {
      const bool made = graph.residence(v) == Residence::kPlanned && graph.producer(v) != graph.caller_op();
      return !made || graph.held(v);
    };
    Costs inside = costs;
    bool clear = true;
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      const ValueId v = value_id(i), old = graph.overwrites(v);
      if (outside(v)) inside.value_bytes[i] = 0;
      clear &= old == kNoValue || outside(v) == outside(old);
    }
    if (!clear) continue;
    inside.workspace_bytes[index(graph.caller_op())] = 0;
    // A second copy of a held value lies inside.
    if (second_copy_of_held(graph, plan)) continue;
    ASSERT_EQ(place(graph, costs, plan, {.alignment_bytes = 1}).load_bytes, simulate(graph, inside, plan).peak_bytes)
        << text_of(plan) << '\n'
        << format_graph(graph, costs);
    ++compared;
  }
  EXPECT_GT(compared, kOddPlans / 100);
}

// An address that is missing, that is there twice, or at which something else is live.
TEST(PlaceTest, TheValidatorNoticesChanges) {
  for (std::uint64_t seed = 0; seed < kOddPlans; ++seed) {
    const auto [graph, costs] = odd_step(seed);
    const Plan plan = odd_plan(graph, seed);
    const Placement found = place(graph, costs, plan, {.alignment_bytes = 1});
    if (found.addresses.empty()) continue;
    Random random(seed);
    const auto any = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(found.addresses.size())));
    Placement changed = found;
    changed.addresses.erase(changed.addresses.begin() + static_cast<std::ptrdiff_t>(any));
    ASSERT_NE(validate_addresses(graph, costs, plan, changed), std::nullopt) << text_of(plan);
    changed = found;
    changed.addresses.push_back(found.addresses[any]);
    ASSERT_NE(validate_addresses(graph, costs, plan, changed), std::nullopt) << text_of(plan);
    const std::vector<detail::Request> asked = detail::requests(graph, costs, plan);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (i == any || asked[i].buffer.begin >= asked[any].buffer.end ||
          asked[any].buffer.begin >= asked[i].buffer.end) {
        continue;
      }
      changed = found;
      changed.addresses[any].offset = found.addresses[i].offset;
      changed.arena_bytes = found.arena_bytes + asked[any].buffer.bytes;
      ASSERT_NE(validate_addresses(graph, costs, plan, changed), std::nullopt) << text_of(plan);
    }
  }
}

}  // namespace
}  // namespace reprise::test
