// On random and on odd steps, whatever the online method runs through is a legal plan, and it counts no more than its
// budget. On steps as a capture gives them, the plan needs no more memory than the method counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "plan/liveness.h"
#include "property/plans_of_steps.h"
#include "reprise/reprise.h"
#include "solve/online/online_run.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

using detail::OnlineRun;
using detail::OnlineStep;
using detail::OnlineTrace;

constexpr OnlineRules kOnlineRules[] = {{.ghosts_first = true, .oldest_first = true},
                                        {.ghosts_first = true, .oldest_first = false},
                                        {.ghosts_first = false, .oldest_first = true},
                                        {.ghosts_first = false, .oldest_first = false}};

std::optional<OnlineTrace> online_trace(const OnlineStep& step, std::int64_t budget_bytes, const OnlineRules& rules) {
  return OnlineRun(step, {.budget_bytes = budget_bytes, .rules = rules}).trace();
}

struct TraceTally {
  int traces = 0;
  int again = 0;    // traces in which something runs again
  int refused = 0;  // budgets without one
};

// In the plan, memory of an odd step that the caller holds may pass from value to value in another way.
enum class StepKind : std::uint8_t { kOdd, kCaptured };

void expect_sound_trace(const CostedGraph& step, StepKind kind, const OnlineTrace& trace, std::int64_t budget_bytes) {
  const auto& [graph, costs] = step;
  EXPECT_LE(trace.peak_bytes, budget_bytes);
  const Plan plan = detail::place_frees(graph, trace.runs);
  const auto violation = validate(graph, plan);
  ASSERT_FALSE(violation) << violation->message << '\n' << text_of(plan);
  const Simulation found = simulate(graph, costs, plan);
  if (kind == StepKind::kCaptured) {
    EXPECT_LE(found.peak_bytes, trace.peak_bytes) << text_of(plan);
  }
  EXPECT_EQ(found.recompute_ns, trace.recompute_ns);
}

void check_traces(const CostedGraph& costed, StepKind kind, TraceTally& tally) {
  const auto& [graph, costs] = costed;
  SCOPED_TRACE(format_graph(costed));
  const OnlineStep step(graph, costs);
  for (const OnlineRules& rules : kOnlineRules) {
    const std::optional<OnlineTrace> plain = online_trace(step, Costs::kMaxTotalBytes, rules);
    ASSERT_TRUE(plain.has_value());
    EXPECT_EQ(plain->recompute_ns, 0);
    EXPECT_EQ(plain->runs.size(), graph.num_ops());
    if (kind == StepKind::kCaptured) {
      EXPECT_FALSE(online_trace(step, step.floor_bytes() - 1, rules)) << "below the floor";
    }
    for (std::int64_t eighth = 0; eighth <= 8; ++eighth) {
      const std::int64_t budget = step.floor_bytes() + (plain->peak_bytes - step.floor_bytes()) * eighth / 8;
      const std::optional<OnlineTrace> trace = online_trace(step, budget, rules);
      if (eighth == 8) {
        ASSERT_TRUE(trace.has_value());
        EXPECT_EQ(trace->runs, plain->runs) << "as much memory as the step takes";
      }
      ++(trace ? tally.traces : tally.refused);
      if (!trace) continue;
      tally.again += trace->runs.size() > graph.num_ops() ? 1 : 0;
      expect_sound_trace(costed, kind, *trace, budget);
      const std::optional<OnlineTrace> same = online_trace(step, trace->peak_bytes, rules);
      ASSERT_TRUE(same.has_value()) << "what it counts is enough";
      EXPECT_EQ(same->runs, trace->runs);
    }
  }
}

TEST(OnlineTest, TracesOfOddStepsAreSound) {
  TraceTally tally;
  for (std::uint64_t seed = 0; seed < kOddPlans && !::testing::Test::HasFailure(); ++seed) {
    check_traces(odd_step(seed, {.forward_ops = 8, .backward_ops = 8}), StepKind::kOdd, tally);
  }
  EXPECT_GT(tally.again, tally.traces / 20);
  EXPECT_GT(tally.refused, tally.traces / 20);
}

TEST(OnlineTest, TracesOfRandomStepsAreSound) {
  TraceTally tally;
  for (std::uint64_t seed = 0; seed < kRandomSteps && !::testing::Test::HasFailure(); ++seed) {
    check_traces(some_random_step(seed), StepKind::kCaptured, tally);
  }
  EXPECT_GT(tally.again, tally.traces / 20);
}

// Whether another trace is worth making is known from the first.
TEST(OnlineTest, WhereGhostsDidNotMatterTheTraceIsTheSame) {
  int mattered = 0;
  for (std::uint64_t seed = 0; seed < kOddPlans && !::testing::Test::HasFailure(); ++seed) {
    const auto [graph, costs] = some_random_step(seed);
    const OnlineStep step(graph, costs);
    const std::int64_t most = online_trace(step, Costs::kMaxTotalBytes, {})->peak_bytes;
    for (std::int64_t part = 0; part < 8; ++part) {
      const std::int64_t budget = step.floor_bytes() + (most - step.floor_bytes()) * part / 8;
      const std::optional<OnlineTrace> first = online_trace(step, budget, {});
      const std::optional<OnlineTrace> other = online_trace(step, budget, {.ghosts_first = false});
      if (!first) continue;
      mattered += first->ghosts_mattered ? 1 : 0;
      if (first->ghosts_mattered) continue;
      ASSERT_TRUE(other.has_value());
      EXPECT_EQ(first->runs, other->runs);
    }
  }
  EXPECT_GT(mattered, 0);
}

// The same plan each time, and the one that was promised: below the smallest budget there is none.
TEST(OnlineTest, ByFormulaItIsOneRunAtTheBudget) {
  for (std::uint64_t seed = 0; seed < kRandomSteps && !::testing::Test::HasFailure(); ++seed) {
    const CostedGraph step = some_random_step(seed);
    SCOPED_TRACE(format_graph(step));
    SolveOptions options{.planner = "online", .judge = Judge::kFormula};
    const Solution least = solve(step, options);
    ASSERT_TRUE(least.found());
    options.budget_bytes = least.budget_bytes;
    const Solution found = solve(step, options);
    ASSERT_TRUE(found.found());
    EXPECT_EQ(found.plan, least.plan);
    EXPECT_LE(found.simulation.peak_bytes, found.formula->peak_bytes);
    EXPECT_EQ(found.simulation.recompute_ns, found.formula->overhead);
    options.budget_bytes = 0;
    if (least.budget_bytes > 0) {
      EXPECT_EQ(solve(step, options).smallest_budget_bytes, least.budget_bytes);
    }
  }
}

}  // namespace
}  // namespace reprise::test
