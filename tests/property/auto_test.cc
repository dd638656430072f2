// On random steps and graphs, planner `auto` is never behind another planner, never gets worse with more work or
// memory, and is sound with any of its techniques switched off.
#include <gtest/gtest.h>

#include <optional>

#include "reprise/reprise.h"
#include "support/costed.h"
#include "support/random.h"
#include "support/random_dag.h"
#include "support/random_step.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr int kSteps = kSmallTests ? 12 : 150;

CostedGraph step_number(int i) {
  Random random(static_cast<std::uint64_t>(7000 + i));
  const StepOptions options{.forward_ops = random.between(2, 10), .backward_ops = random.between(1, 16)};
  return random_step(options, [&](std::int64_t bound) { return random.below(bound); });
}

std::vector<CostedGraph> assorted_graphs() {
  std::vector<CostedGraph> graphs;
  for (int i = 0; i < kSteps; ++i) graphs.push_back(step_number(i));
  for (const Dag& dag : assorted_dags(kSteps / 3, 4, 10, 77)) graphs.push_back(to_graph(dag));
  return graphs;
}

// The time of a curve's fastest plan within the budget, or nothing.
std::optional<std::int64_t> time_at(const Curve& found, std::int64_t budget) {
  std::optional<std::int64_t> time;
  for (const Solution& point : found.points) {
    if (point.simulation.peak_bytes <= budget) time = point.simulation.time_ns;
  }
  return time;
}

TEST(AutoTest, NeverLosesToAnotherPlanner) {
  for (const CostedGraph& graph : assorted_graphs()) {
    const Curve own = curve(graph, {.planner = "auto"});
    for (const std::string_view name : planner_names()) {
      SCOPED_TRACE(std::string(name) + '\n' + format_graph(graph));
      for (const Solution& point : curve(graph, {.planner = std::string(name)}).points) {
        const auto time = time_at(own, point.simulation.peak_bytes);
        ASSERT_TRUE(time.has_value());
        ASSERT_LE(*time, point.simulation.time_ns);
      }
    }
  }
}

TEST(AutoTest, TheBudgetOnlySelectsWhereStepsAreSmall) {
  for (int i = 0; i < kSteps; i += 10) {
    const auto [step, costs] = step_number(i);
    const Curve own = curve(step, costs, {.planner = "auto"});
    for (const Solution& point : own.points) {
      const Solution found = solve(step, costs, {.planner = "auto", .budget_bytes = point.budget_bytes});
      EXPECT_EQ(found.simulation, point.simulation) << format_graph(step, costs);
    }
  }
}

TEST(AutoTest, MoreWorkIsNeverWorse) {
  for (int i = 0; i < kSteps; i += 5) {
    const auto [step, costs] = step_number(i);
    const Solution least = solve(step, costs, {.planner = "auto"});
    const std::int64_t budget = (least.budget_bytes + 3 * solve(step, costs, {.planner = "none"}).budget_bytes) / 4;
    Solution before;
    for (const std::size_t work : {0, 1'000, 10'000, 100'000, 10'000'000}) {
      const Solution now = solve(step, costs, {.planner = "auto", .budget_bytes = budget, .work = work});
      if (before.found()) {
        ASSERT_TRUE(now.found()) << format_graph(step, costs);
        EXPECT_LE(now.simulation.time_ns, before.simulation.time_ns) << format_graph(step, costs);
      }
      before = now;
    }
  }
}

TEST(AutoTest, WhatIsNamedAsSmallestBudgetHasAPlan) {
  for (int i = 0; i < kSteps; i += 2) {
    const auto [step, costs] = step_number(i);
    const std::int64_t smallest = solve(step, costs, {.planner = "auto"}).budget_bytes;
    const Solution found = solve(step, costs, {.planner = "auto", .budget_bytes = smallest});
    ASSERT_TRUE(found.found()) << format_graph(step, costs);
    EXPECT_LE(found.simulation.peak_bytes, smallest);
    if (smallest == 0) continue;
    const Solution below = solve(step, costs, {.planner = "auto", .budget_bytes = smallest - 1});
    EXPECT_TRUE(below.status == Status::kInfeasible || below.simulation.peak_bytes < smallest)
        << format_graph(step, costs);
  }
}

TEST(AutoTest, CurvesRiseInMemoryAndFallInTime) {
  for (int i = 0; i < kSteps; i += 3) {
    const Curve found = curve(step_number(i), {.planner = "auto", .budget_bytes = 1});
    for (std::size_t k = 1; k < found.points.size(); ++k) {
      EXPECT_GT(found.points[k].simulation.peak_bytes, found.points[k - 1].simulation.peak_bytes);
      EXPECT_LT(found.points[k].simulation.time_ns, found.points[k - 1].simulation.time_ns);
    }
  }
}

// With as many bytes and as much time as a graph may have, no sum overflows.
TEST(AutoTest, TakesTheLargestNumbers) {
  constexpr std::int64_t kLarge = Costs::kMaxTotalBytes / 32;
  GraphBuilder b("large");
  std::vector<ValueId> x{b.arriving(kLarge)};
  for (std::size_t i = 0; i < 6; ++i) {
    x.push_back(b.value(kLarge));
    b.op({.name = "f", .time_ns = kLarge, .inputs = {x[i]}, .outputs = {x[i + 1]}});
  }
  ValueId gradient = b.value(kLarge);
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {x.back()}, .outputs = {gradient}});
  for (std::size_t i = 6; i > 0; --i) {
    const ValueId next = b.value(kLarge);
    b.op(
        {.name = "g", .phase = Phase::kBackward, .time_ns = kLarge, .inputs = {x[i - 1], gradient}, .outputs = {next}});
    gradient = next;
  }
  b.output(gradient);
  const auto [step, costs] = b.build();
  const Curve found = curve(step, costs, {.planner = "auto"});
  EXPECT_LE(found.points.front().simulation.peak_bytes, 5 * kLarge);
  for (const Solution& point : found.points) EXPECT_LE(*point.lower_bound_ns, point.simulation.time_ns);
}

TEST(AutoTest, TellsOfItsCourse) {
  std::size_t calls = 0;
  std::size_t before = 0;
  (void)solve(step_number(3), {.planner = "auto", .progress = [&](std::size_t done, std::size_t total) {
                                 EXPECT_LE(done, total);
                                 EXPECT_GE(done, before);
                                 before = done;
                                 ++calls;
                               }});
  EXPECT_GT(calls, 0U);
}

TEST(AutoTest, StopsWhenAsked) {
  for (int i = 0; i < kSteps; i += 5) {
    for (int calls : {0, 1, 5, 50}) {
      const Solution found = solve(step_number(i), {.planner = "auto", .should_stop = [&] { return calls-- <= 0; }});
      EXPECT_FALSE(found.plan.actions.empty());
    }
  }
}

}  // namespace
}  // namespace reprise::test
