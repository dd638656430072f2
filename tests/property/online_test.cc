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

using detail::OnlineCourse;
using detail::OnlineRun;
using detail::OnlineView;

constexpr OnlineRules kOnlineRules[] = {{.ghosts_first = true, .oldest_first = true},
                                        {.ghosts_first = true, .oldest_first = false},
                                        {.ghosts_first = false, .oldest_first = true},
                                        {.ghosts_first = false, .oldest_first = false}};

std::optional<OnlineCourse> online_course(const OnlineView& step, std::int64_t budget_bytes, const OnlineRules& rules) {
  return OnlineRun(step, {.budget_bytes = budget_bytes, .rules = rules}).course();
}

struct CourseTally {
  int courses = 0;
  int again = 0;    // courses in which something runs again
  int refused = 0;  // budgets without one
};

// In the plan, memory of an odd step that the caller holds may pass from value to value in another way.
enum class StepKind : std::uint8_t { kOdd, kCaptured };

void expect_sound_course(const CostedGraph& step, StepKind kind, const OnlineCourse& course,
                         std::int64_t budget_bytes) {
  const auto& [graph, costs] = step;
  EXPECT_LE(course.peak_bytes, budget_bytes);
  const Plan plan = detail::place_frees(graph, course.runs);
  const auto violation = validate(graph, plan);
  ASSERT_FALSE(violation) << violation->message << '\n' << text_of(plan);
  const Simulation found = simulate(graph, costs, plan);
  if (kind == StepKind::kCaptured) {
    EXPECT_LE(found.peak_bytes, course.peak_bytes) << text_of(plan);
  }
  EXPECT_EQ(found.recompute_ns, course.recompute_ns);
}

void check_courses(const CostedGraph& costed, StepKind kind, CourseTally& tally) {
  const auto& [graph, costs] = costed;
  SCOPED_TRACE(format_graph(costed));
  const OnlineView step(graph, costs);
  for (const OnlineRules& rules : kOnlineRules) {
    const std::optional<OnlineCourse> plain = online_course(step, Costs::kMaxTotalBytes, rules);
    ASSERT_TRUE(plain.has_value());
    EXPECT_EQ(plain->recompute_ns, 0);
    EXPECT_EQ(plain->runs.size(), graph.num_ops());
    if (kind == StepKind::kCaptured) {
      EXPECT_FALSE(online_course(step, step.floor_bytes() - 1, rules)) << "below the floor";
    }
    for (std::int64_t eighth = 0; eighth <= 8; ++eighth) {
      const std::int64_t budget = step.floor_bytes() + (plain->peak_bytes - step.floor_bytes()) * eighth / 8;
      const std::optional<OnlineCourse> course = online_course(step, budget, rules);
      if (eighth == 8) {
        ASSERT_TRUE(course.has_value());
        EXPECT_EQ(course->runs, plain->runs) << "as much memory as the step takes";
      }
      ++(course ? tally.courses : tally.refused);
      if (!course) continue;
      tally.again += course->runs.size() > graph.num_ops() ? 1 : 0;
      expect_sound_course(costed, kind, *course, budget);
      const std::optional<OnlineCourse> same = online_course(step, course->peak_bytes, rules);
      ASSERT_TRUE(same.has_value()) << "what it counts is enough";
      EXPECT_EQ(same->runs, course->runs);
    }
  }
}

TEST(OnlineTest, CoursesOfOddStepsAreSound) {
  CourseTally tally;
  for (std::uint64_t seed = 0; seed < kOddPlans && !::testing::Test::HasFailure(); ++seed) {
    check_courses(odd_step(seed, {.forward_ops = 8, .backward_ops = 8}), StepKind::kOdd, tally);
  }
  EXPECT_GT(tally.again, tally.courses / 20);
  EXPECT_GT(tally.refused, tally.courses / 20);
}

TEST(OnlineTest, CoursesOfRandomStepsAreSound) {
  CourseTally tally;
  for (std::uint64_t seed = 0; seed < kRandomSteps && !::testing::Test::HasFailure(); ++seed) {
    check_courses(some_random_step(seed), StepKind::kCaptured, tally);
  }
  EXPECT_GT(tally.again, tally.courses / 20);
}

// Whether another course is worth making is known from the first.
TEST(OnlineTest, WhereGhostsDidNotMatterTheCourseIsTheSame) {
  int mattered = 0;
  for (std::uint64_t seed = 0; seed < kOddPlans && !::testing::Test::HasFailure(); ++seed) {
    const auto [graph, costs] = some_random_step(seed);
    const OnlineView step(graph, costs);
    const std::int64_t most = online_course(step, Costs::kMaxTotalBytes, {})->peak_bytes;
    for (std::int64_t part = 0; part < 8; ++part) {
      const std::int64_t budget = step.floor_bytes() + (most - step.floor_bytes()) * part / 8;
      const std::optional<OnlineCourse> first = online_course(step, budget, {});
      const std::optional<OnlineCourse> other = online_course(step, budget, {.ghosts_first = false});
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
