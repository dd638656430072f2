// Hoisting keeps plans legal, within the budget and as fast as they were; and plans of planners for steps with
// communicators keep their budgets, take the time of the simulator and are not below the bound.
#include "solve/overlap/hoist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/liveness.h"
#include "property/plans_of_steps.h"
#include "solve/overlap/joined.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

using detail::hoist;
using detail::place_frees;

constexpr std::uint64_t kSteps = kSmallTests ? 100 : 1000;

CostedGraph step_number(std::uint64_t seed) {
  return odd_step(seed, {.forward_ops = 8, .backward_ops = 8, .communicators = static_cast<int>(1 + seed % 3)});
}

// Runs as a planner of the joined step makes them, some of them again.
std::vector<OpId> some_runs(const CostedGraph& step, std::uint64_t seed) {
  const detail::JoinedStep joined(step.graph, step.costs, 1);
  if (seed % 2 == 0) return joined.whole(runs_of(solve(joined.graph(), joined.costs(), {.planner = "none"}).plan));
  return joined.whole(runs_of(solve(joined.graph(), joined.costs(), {.planner = "chen"}).plan));
}

TEST(HoistTest, IsLegalWithinTheBudgetAndNeverSlower) {
  int faster = 0, tight = 0;
  for (std::uint64_t seed = 0; seed < kSteps && !HasFatalFailure(); ++seed) {
    const CostedGraph step = step_number(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + '\n' + format_graph(step));
    const std::vector<OpId> runs = some_runs(step, seed);
    const Simulation before = simulate(step, place_frees(step.graph, runs));
    std::int64_t time_at[2] = {};
    for (const bool loose : {false, true}) {
      const std::int64_t budget = loose ? 1'000'000 : before.peak_bytes;
      const Plan plan = hoist(step.graph, step.costs, runs, budget);
      const auto violation = validate(step.graph, plan);
      ASSERT_FALSE(violation) << violation->message << '\n' << text_of(plan);
      const Simulation after = simulate(step, plan);
      ASSERT_LE(after.peak_bytes, budget);
      ASSERT_LE(after.time_ns, before.time_ns);
      ASSERT_EQ(after.recompute_ns, before.recompute_ns);
      time_at[loose ? 1 : 0] = after.time_ns;
    }
    faster += time_at[1] < before.time_ns ? 1 : 0;
    tight += time_at[0] > time_at[1] ? 1 : 0;
  }
  EXPECT_GT(faster, static_cast<int>(kSteps / 2));
  EXPECT_GT(tight, static_cast<int>(kSteps / 20));  // memory decides
}

// With one communicator and room, no collective is late that could have been in time: nothing is gained by starting
// everything as soon as its operands are there.
TEST(HoistTest, ComesNearToStartingEverythingAtOnce) {
  std::int64_t hoisted_ns = 0, eager_ns = 0, before_ns = 0;
  for (std::uint64_t seed = 0; seed < kSteps; ++seed) {
    const CostedGraph step = odd_step(seed, {.forward_ops = 8, .backward_ops = 8, .communicators = 1});
    const std::vector<OpId> runs = some_runs(step, 0);
    std::vector<OpId> eager;  // each start right after what it needs
    for (const OpId op : runs) {
      if (!step.graph.is_start(op)) {
        eager.push_back(op);
        continue;
      }
      auto at = eager.end();
      const auto blocks = [&](OpId before) {
        return before == step.graph.caller_op() ||
               std::ranges::any_of(step.graph.inputs(op), [&](ValueId v) { return step.graph.producer(v) == before; });
      };
      while (at != eager.begin() && !blocks(*(at - 1)) && !step.graph.is_start(*(at - 1))) --at;
      eager.insert(at, op);
    }
    before_ns += simulate(step, place_frees(step.graph, runs)).time_ns;
    eager_ns += simulate(step, place_frees(step.graph, eager)).time_ns;
    hoisted_ns += simulate(step, hoist(step.graph, step.costs, runs, 1'000'000)).time_ns;
  }
  EXPECT_LE(hoisted_ns - eager_ns, (before_ns - eager_ns) / 50);
}

TEST(OverlappingPlansTest, EveryPlannerIsSoundAtEveryBudget) {
  for (std::uint64_t seed = 0; seed < kSteps / 100 && !HasFatalFailure(); ++seed) {
    const CostedGraph step = step_number(seed);
    const Solution plain = solve(step, {.planner = "none"});
    for (const std::string_view name : planner_names()) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::string(name) + '\n' + format_graph(step));
      SolveOptions options{.planner = std::string(name), .work = 500'000, .knobs = knobs({.candidates = 4})};
      const Solution tightest = solve(step, options);
      ASSERT_TRUE(tightest.found()) << tightest.message;
      ASSERT_LE(tightest.budget_bytes, plain.simulation.peak_bytes);
      for (const std::int64_t more : {0, 10, 40, 200}) {
        options.budget_bytes = tightest.budget_bytes + more;
        const Solution found = solve(step, options);
        ASSERT_TRUE(found.found()) << found.message;
        ASSERT_FALSE(validate(step.graph, found.plan));
        ASSERT_EQ(simulate(step, found.plan), found.simulation);
        ASSERT_LE(found.simulation.peak_bytes, *options.budget_bytes);
        if (found.lower_bound_ns) {
          ASSERT_LE(*found.lower_bound_ns, found.simulation.time_ns);
        }
        ASSERT_LE(found.floor_bytes, found.simulation.peak_bytes);
      }
      options.budget_bytes = tightest.budget_bytes - 1;
      if (tightest.budget_bytes > 0) {
        ASSERT_EQ(solve(step, options).status, Status::kInfeasible);
      }
    }
  }
}

// At half of what may be saved, for many steps.
TEST(OverlappingPlansTest, NoPlanIsFasterThanItsBound) {
  int bounds = 0;
  for (std::uint64_t seed = 0; seed < kSteps / 4 && !HasFatalFailure(); ++seed) {
    const CostedGraph step = step_number(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + '\n' + format_graph(step));
    SolveOptions options{.work = 100'000, .knobs = knobs({.candidates = 4})};
    const Solution tightest = solve(step, options);
    const Solution plain = solve(step, {.planner = "none"});
    for (const int part : {0, 1, 2}) {
      options.budget_bytes = tightest.budget_bytes + (plain.simulation.peak_bytes - tightest.budget_bytes) / 2 * part;
      const Solution found = solve(step, options);
      ASSERT_TRUE(found.found()) << found.message;
      ASSERT_FALSE(found.formula);
      if (!found.lower_bound_ns) continue;
      ASSERT_LE(*found.lower_bound_ns, found.simulation.time_ns) << text_of(found.plan);
      ++bounds;
    }
  }
  EXPECT_GT(bounds, static_cast<int>(kSteps / 4));
}

TEST(OverlappingPlansTest, WhatWasFoundBeforeAStopCounts) {
  for (std::uint64_t seed = 0; seed < kSteps / 50 && !HasFatalFailure(); ++seed) {
    const CostedGraph step = step_number(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + '\n' + format_graph(step));
    SolveOptions options{.work = 500'000, .knobs = knobs({.candidates = 4})};
    options.budget_bytes = solve(step, options).budget_bytes;
    for (const int after : {0, 1, 3, 10, 30, 100, 300}) {
      int asked = 0;
      options.should_stop = [&] { return ++asked > after; };
      const Solution found = solve(step, options);
      EXPECT_TRUE(found.found() || found.status == Status::kStopped);
      EXPECT_FALSE(!found.plan.actions.empty() && validate(step.graph, found.plan));
    }
  }
}

TEST(OverlappingPlansTest, CurvesRiseInMemoryAndFallInTime) {
  for (std::uint64_t seed = 0; seed < kSteps / 100; ++seed) {
    const CostedGraph step = step_number(seed);
    const Curve found = curve(step, {.work = 500'000, .knobs = knobs({.candidates = 4})});
    ASSERT_FALSE(found.points.empty());
    for (std::size_t k = 0; k < found.points.size(); ++k) {
      ASSERT_FALSE(validate(step.graph, found.points[k].plan));
      ASSERT_EQ(simulate(step, found.points[k].plan), found.points[k].simulation);
      if (k == 0) continue;
      EXPECT_GT(found.points[k].simulation.peak_bytes, found.points[k - 1].simulation.peak_bytes);
      EXPECT_LT(found.points[k].simulation.time_ns, found.points[k - 1].simulation.time_ns);
    }
  }
}

}  // namespace
}  // namespace reprise::test
