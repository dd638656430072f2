// On training steps with their own backward ops, every planner's plan is legal, fits the budget and agrees with the
// simulator, and both file formats give back what was written.
#include <gtest/gtest.h>

#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/costed.h"
#include "support/random.h"
#include "support/random_dag.h"
#include "support/random_step.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr int kRandomSteps = kSmallTests ? 20 : 400;

CostedGraph random_step_number(int i) {
  Random random(static_cast<std::uint64_t>(1000 + i));
  const StepOptions options{.forward_ops = random.between(1, 12), .backward_ops = random.between(0, 14)};
  return random_step(options, [&](std::int64_t bound) { return random.below(bound); });
}

void expect_sound(const CostedGraph& step, const Solution& found, std::int64_t budget) {
  ASSERT_TRUE(found.found()) << found.message;
  const auto violation = validate(step.graph, found.plan);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  EXPECT_EQ(simulate(step, found.plan), found.simulation);
  EXPECT_EQ(timeline(step, found.plan).total, found.simulation);
  EXPECT_LE(found.simulation.peak_bytes, budget);
}

TEST(RandomStepTest, EveryPlannerIsSoundAtEveryBudget) {
  for (int i = 0; i < kRandomSteps && !::testing::Test::HasFailure(); ++i) {
    const CostedGraph step = random_step_number(i);
    const Solution plain = solve(step, {.planner = "none"});
    for (const std::string_view name : planner_names()) {
      SCOPED_TRACE("step " + std::to_string(i) + ", " + std::string(name) + '\n' + format_graph(step));
      SolveOptions options{.planner = std::string(name), .knobs = knobs({.candidates = 8})};
      const Solution tightest = solve(step, options);
      ASSERT_TRUE(tightest.found()) << tightest.message;
      EXPECT_LE(tightest.budget_bytes, plain.budget_bytes);
      std::int64_t time = tightest.simulation.time_ns;
      for (std::int64_t quarter = 0; quarter <= 4; ++quarter) {
        options.budget_bytes = tightest.budget_bytes + (plain.budget_bytes - tightest.budget_bytes) * quarter / 4;
        const Solution found = solve(step, options);
        expect_sound(step, found, *options.budget_bytes);
        EXPECT_LE(found.simulation.time_ns, time);
        time = found.simulation.time_ns;
      }
      EXPECT_EQ(time, plain.simulation.time_ns);  // With enough memory, nothing is recomputed.
      options.budget_bytes = tightest.budget_bytes - 1;
      if (tightest.budget_bytes > 0) {
        EXPECT_EQ(solve(step, options).status, Status::kInfeasible);
      }
    }
  }
}

TEST(RandomStepTest, PlansByFormulaAreLegal) {
  for (int i = 0; i < kRandomSteps && !::testing::Test::HasFailure(); ++i) {
    const CostedGraph step = random_step_number(i);
    for (const std::string_view name : planner_names()) {
      for (const bool keep_last : {false, true}) {
        SCOPED_TRACE("step " + std::to_string(i) + ", " + std::string(name) + '\n' + format_graph(step));
        const Solution found =
            solve(step, {.planner = std::string(name), .judge = Judge::kFormula, .keep_last = keep_last});
        expect_sound(step, found, found.simulation.peak_bytes);
        EXPECT_LE(found.formula->peak_bytes, found.budget_bytes);
      }
    }
  }
}

TEST(RandomStepTest, CurvesRiseInMemoryAndFallInTime) {
  for (int i = 0; i < kRandomSteps; i += 4) {
    const CostedGraph step = random_step_number(i);
    const Curve found = curve(step, {.planner = "lower-sets-approx", .knobs = knobs({.candidates = 8})});
    ASSERT_FALSE(found.points.empty()) << format_graph(step);
    for (std::size_t k = 1; k < found.points.size(); ++k) {
      EXPECT_GT(found.points[k].simulation.peak_bytes, found.points[k - 1].simulation.peak_bytes);
      EXPECT_LT(found.points[k].simulation.time_ns, found.points[k - 1].simulation.time_ns);
    }
  }
}

void expect_round_trip(const CostedGraph& graph, const Graph& step) {
  const std::string text = format_graph(graph);
  EXPECT_EQ(parse_graph(text, "text"), graph);
  EXPECT_EQ(format_graph(parse_graph(text, "text")), text);
  const Solution found = solve(graph, {.planner = "chen"});
  const PlanFile file{.graph = step.name(),
                      .ops = step.num_ops(),
                      .values = step.num_values(),
                      .planner = found.planner,
                      .budget_bytes = found.budget_bytes,
                      .simulation = found.simulation,
                      .plan = found.plan};
  EXPECT_EQ(parse_plan(format_plan(file), "text"), file);
}

TEST(FormatTest, GraphsAndPlansComeBackAsTheyWere) {
  for (int i = 0; i < kRandomSteps; ++i) expect_round_trip(random_step_number(i), random_step_number(i).graph);
  for (const Dag& dag : assorted_dags(fewer(80), 1, 40, 31)) {
    const CostedGraph graph = to_graph(dag);
    const CostedGraph step = complete_backward(graph);
    expect_round_trip(graph, step.graph);
    EXPECT_EQ(parse_graph(format_graph(step), "text"), step);
  }
}

}  // namespace
}  // namespace reprise::test
