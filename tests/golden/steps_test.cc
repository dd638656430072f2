// On the captured steps of data/steps, planner `auto` must not get worse, and must stay near its lower bound.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

struct Expected {
  const char* step;
  std::array<double, 3> percent;  // recomputation at 80, 50 and 30 % of the memory, of the step's time; 0: no plan
  double least_gib;
  double gap;  // how far the plans at 50 % and above are from the bound, in percentage points
};

// The results that were reached with this amount of work, rounded up.
constexpr std::size_t kWork = 60'000'000;
const auto kNoBound = knobs({.techniques = {.bound = false}});
constexpr std::array kSteps{
    Expected{"vgg19_64", {0.85, 5.60, 0}, 2.55, 1.6},
    Expected{"unet_8x572", {1.70, 8.30, 0}, 2.42, 1.3},
    Expected{"resnet50_96", {2.09, 8.90, 17.3}, 1.45, 1},
    Expected{"resnet152_48", {2.08, 8.68, 17.1}, 0.92, 1},
    Expected{"gpt2_medium_8x1024", {1.96, 7.00, 16.6}, 3.20, 1},
    Expected{"densenet161_32", {3.41, 10.9, 17.9}, 0.76, 1},
};

// All steps, or only the two small ones in debug and sanitizer builds.
std::span<const Expected> steps() {
#ifdef REPRISE_SMALL_TESTS
  return std::span(kSteps).first(2);
#else
  return kSteps;
#endif
}

struct Captured {
  CostedGraph step;
  std::int64_t start_bytes = 0;
  Simulation plain;

  explicit Captured(const std::string& name)
      : step(parse_graph(read_text(std::string(REPRISE_SOURCE_DIR) + "/data/steps/" + name + ".graph.json"), name)) {
    const Plan plan = solve(step, {.planner = "none"}).plan;
    start_bytes = timeline(step, plan).start_bytes;
    plain = simulate(step, plan);
  }
  [[nodiscard]] std::int64_t budget(int share) const {
    return start_bytes + (plain.peak_bytes - start_bytes) * share / 100;
  }
  [[nodiscard]] Solution at(int share) const {
    return solve(step, {.budget_bytes = budget(share), .work = kWork, .knobs = knobs({.bound_work = 5'000'000})});
  }
  [[nodiscard]] double percent(std::int64_t time_ns) const {
    return 100 * static_cast<double>(time_ns) / static_cast<double>(plain.time_ns);
  }
};

TEST(CapturedStepsTest, AutoIsNoWorseThanItHasBeen) {
  for (const Expected& expected : steps()) {
    SCOPED_TRACE(expected.step);
    const Captured step(expected.step);
    for (std::size_t i = 0; i < expected.percent.size(); ++i) {
      const int share = std::array{80, 50, 30}[i];
      if (expected.percent[i] == 0) continue;
      const Solution found = step.at(share);
      ASSERT_TRUE(found.found()) << found.message;
      EXPECT_LE(step.percent(found.simulation.recompute_ns), expected.percent[i]) << share << " %";
      if (share < 50) continue;
      EXPECT_LE(step.percent(found.simulation.time_ns - *found.lower_bound_ns), expected.gap)
          << share << " %: far from the bound";
    }
  }
}

TEST(CapturedStepsTest, LeastPeaksAreNoHigherThanTheyHaveBeen) {
  for (const Expected& expected : steps()) {
    const Captured step(expected.step);
    const Solution least = solve(step.step, {.work = kWork, .knobs = kNoBound});
    EXPECT_LE(static_cast<double>(least.simulation.peak_bytes - step.start_bytes) * 0x1p-30, expected.least_gib)
        << expected.step;
  }
}

TEST(CapturedStepsTest, ALegalPlanComesWithLittleWork) {
  for (const Expected& expected : steps()) {
    const Captured step(expected.step);
    for (const int share : {90, 70, 60}) {
      const Solution found =
          solve(step.step, {.budget_bytes = step.budget(share), .work = 2'000'000, .knobs = kNoBound});
      EXPECT_TRUE(found.found()) << expected.step << " at " << share << " %";
    }
  }
}

TEST(CapturedStepsTest, MoreWorkIsNeverWorse) {
  for (const Expected& expected : steps().first(2)) {
    const Captured step(expected.step);
    for (const int share : {70, 45}) {
      std::int64_t before = std::numeric_limits<std::int64_t>::max();
      for (const std::size_t work : {1'000'000U, 4'000'000U, 16'000'000U, 64'000'000U}) {
        const Solution now = solve(step.step, {.budget_bytes = step.budget(share), .work = work, .knobs = kNoBound});
        if (!now.found()) {
          EXPECT_EQ(before, std::numeric_limits<std::int64_t>::max()) << expected.step;
          continue;
        }
        EXPECT_LE(now.simulation.time_ns, before) << expected.step << " with " << work;
        before = now.simulation.time_ns;
      }
    }
  }
}

TEST(CapturedStepsTest, WhatIsNamedAsSmallestBudgetHasAPlan) {
  for (const Expected& expected : steps()) {
    const Captured step(expected.step);
    SolveOptions options{.work = kWork / 4, .knobs = kNoBound};
    const std::int64_t least = solve(step.step, options).budget_bytes;
    options.budget_bytes = least - 1;
    const Solution below = solve(step.step, options);
    EXPECT_EQ(below.status, Status::kInfeasible) << expected.step;
    EXPECT_EQ(below.smallest_budget_bytes, least) << expected.step;
    options.budget_bytes = least;
    EXPECT_TRUE(solve(step.step, options).found()) << expected.step;
  }
}

TEST(CapturedStepsTest, AutoNeverLosesToAnotherPlanner) {
  for (const Expected& expected : steps()) {
    const Captured step(expected.step);
    for (const int share : {80, 50, 30}) {
      const Solution own = step.at(share);
      for (const std::string_view name : planner_names()) {
        if (name == "auto") continue;
        const Solution other = solve(
            step.step,
            {.planner = std::string(name), .budget_bytes = step.budget(share), .knobs = knobs({.candidates = 16})});
        if (!other.found()) continue;
        ASSERT_TRUE(own.found()) << expected.step << ' ' << name;
        EXPECT_LE(own.simulation.time_ns, other.simulation.time_ns) << expected.step << ' ' << name << ' ' << share;
      }
    }
  }
}

// The budgets that suit another planner best are the peaks of its own plans. `auto` has its default work here.
TEST(CapturedStepsTest, AutoIsNotBehindAnotherPlannerAtThePeaksOfItsPlans) {
#ifdef REPRISE_SMALL_TESTS
  const std::vector<const char*> names{"vgg19_64"};
#else
  const std::vector<const char*> names{"gpt2_medium_8x1024", "llama_1b_4x2048"};
#endif
  for (const char* name : names) {
    const Captured step(name);
    for (const char* planner : {"chain", "lower-sets-approx"}) {
      const std::vector<Solution> points = curve(step.step, {.planner = planner}).points;
      ASSERT_FALSE(points.empty()) << name << ' ' << planner;
      for (const Solution& point : {points.front(), points[points.size() / 4]}) {
        const Solution own = solve(step.step, {.budget_bytes = point.simulation.peak_bytes, .knobs = kNoBound});
        ASSERT_TRUE(own.found()) << name << ' ' << planner;
        EXPECT_LE(own.simulation.time_ns, point.simulation.time_ns) << name << ' ' << planner;
      }
    }
  }
}

// The points of a curve have different orders of backward ops. The report of a plan must show the bound for its own
// order.
TEST(CapturedStepsTest, TheBoundInAReportIsForTheOrderOfItsPlan) {
  const Captured step("unet_8x572");
  SolveOptions options{
      .budget_bytes = step.budget(50), .work = kWork, .knobs = knobs({.techniques = {.reordering = false}})};
  const Solution planned = solve(step.step, options);
  options.budget_bytes = planned.simulation.peak_bytes;
  const std::int64_t bound = *solve(step.step, options).lower_bound_ns;
  EXPECT_EQ(lower_bound_ns(step.step.graph, step.step.costs, planned.plan), bound);
  const ReportInput input{.graph = step.step.graph,
                          .costs = step.step.costs,
                          .plan = planned.plan,
                          .curve = curve(step.step, {.work = kWork / 4}).points};
  EXPECT_NE(report_json(input).find("\"lower_bound_ns\":" + std::to_string(bound) + ","), std::string::npos);
}

}  // namespace
}  // namespace reprise::test
