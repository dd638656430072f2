// On random steps, plans that may store values in the host's memory keep both budgets, and never lose to plans that may
// not, that have less of it, or that have a slower link. Neither do curves and the smallest budgets that are named.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "fixtures/steps.h"
#include "property/plans_of_steps.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

constexpr std::uint64_t kCarrySteps = kSmallTests ? 6 : 80;
constexpr std::size_t kWork = 500'000;
constexpr std::array<std::int64_t, 5> kRates{1, 2, 5, 40, 100'000};  // bytes per nanosecond

struct Question {
  const Graph& graph;
  Costs costs;
  std::int64_t budget_bytes;
};

Solution answer(const Question& question, std::int64_t host_budget_bytes, const char* planner = "auto") {
  return solve(question.graph, question.costs,
               {.planner = planner,
                .budget_bytes = question.budget_bytes,
                .host_budget_bytes = host_budget_bytes,
                .work = kWork});
}

void expect_sound(const Question& question, const Solution& found, std::int64_t host_budget_bytes) {
  if (!found.found()) return;
  ASSERT_FALSE(validate(question.graph, found.plan));
  ASSERT_EQ(simulate(question.graph, question.costs, found.plan), found.simulation);
  EXPECT_LE(found.simulation.peak_bytes, question.budget_bytes);
  EXPECT_LE(found.simulation.host_peak_bytes, host_budget_bytes);
}

void expect_not_slower(const Solution& found, const Solution& rival) {
  if (!rival.found()) return;
  ASSERT_TRUE(found.found());
  EXPECT_LE(found.simulation.time_ns, rival.simulation.time_ns);
}

// `check(graph, costs)` for random steps.
template <typename Check>
void for_steps(Check check) {
  for (std::uint64_t seed = 0; seed < kCarrySteps && !testing::Test::HasFatalFailure(); ++seed) {
    const auto [graph, costs] = some_random_step(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + '\n' + format_graph(graph, costs));
    check(graph, costs);
  }
}

// `check(question)` at three budgets of random steps.
template <typename Check>
void for_questions(Check check) {
  for_steps([&](const Graph& graph, const Costs& costs) {
    const std::int64_t least = solve(graph, costs, {.planner = "auto"}).budget_bytes;
    const std::int64_t plain = solve(graph, costs, {.planner = "none"}).budget_bytes;
    for (const std::int64_t budget : {least - 1, least, (least + plain) / 2}) {
      if (budget >= 0) check(Question{.graph = graph, .costs = costs, .budget_bytes = budget});
    }
  });
}

TEST(CarryTest, MoreBandwidthIsNeverSlower) {
  int copying = 0;
  int better = 0;
  for_questions([&](Question question) {
    const Solution without = answer(question, 0);
    Solution before = without;
    for (const std::int64_t rate : kRates) {
      question.costs = with_link(question.costs, rate, /*latency_ns=*/1);
      const Solution now = answer(question, 1'000'000);
      expect_sound(question, now, 1'000'000);
      expect_not_slower(now, before);
      copying += copies(now.plan) ? 1 : 0;
      before = now;
    }
    better += before.found() && (!without.found() || before.simulation.time_ns < without.simulation.time_ns) ? 1 : 0;
  });
  EXPECT_GT(copying, static_cast<int>(kCarrySteps / 4));
  EXPECT_GT(better, static_cast<int>(kCarrySteps / 8));
}

TEST(CarryTest, MoreOfTheHostsMemoryIsNeverSlower) {
  for_questions([](Question question) {
    question.costs = with_link(question.costs, 20);
    Solution before = answer(question, 0);
    for (const std::int64_t host : {1, 20, 100, 1'000, 1'000'000}) {
      const Solution now = answer(question, host);
      expect_sound(question, now, host);
      expect_not_slower(now, before);
      before = now;
    }
  });
}

TEST(CarryTest, ALinkAloneChangesNothing) {
  for_questions([](Question question) {
    const Solution without = answer(question, 0);
    question.costs = with_link(question.costs, 20);
    const Solution with = answer(question, 0);
    EXPECT_EQ(with.plan, without.plan);
    EXPECT_EQ(with.simulation, without.simulation);
    EXPECT_EQ(with.lower_bound_ns, without.lower_bound_ns);
    EXPECT_EQ(with.smallest_budget_bytes, without.smallest_budget_bytes);
  });
}

TEST(CarryTest, TakesThePlansOfEveryPlanner) {
  for_questions([](Question question) {
    question.costs = with_link(question.costs, 50);
    for (const char* planner : {"none", "chen", "revolve"}) {
      SCOPED_TRACE(planner);
      const Solution with = answer(question, 1'000'000, planner);
      expect_sound(question, with, 1'000'000);
      expect_not_slower(with, answer(question, 0, planner));
    }
  });
}

constexpr std::int64_t kRate = 40;
constexpr std::int64_t kHost = 1'000'000;

TEST(CarryTest, WhatARefusalNamesHasAPlan) {
  int below = 0;
  for_steps([&](const Graph& graph, const Costs& costs) {
    const Solution least = solve(graph, costs, {.planner = "auto", .work = kWork});
    Question question{.graph = graph, .costs = with_link(costs, kRate), .budget_bytes = least.budget_bytes / 2};
    const Solution refused = answer(question, kHost);
    if (refused.found()) return;
    ASSERT_GT(refused.smallest_budget_bytes, question.budget_bytes);
    ASSERT_LE(refused.smallest_budget_bytes, least.budget_bytes);
    EXPECT_LE(simulate(question.graph, question.costs, refused.smallest_plan).peak_bytes,
              refused.smallest_budget_bytes);
    below += refused.smallest_budget_bytes < least.budget_bytes ? 1 : 0;
    question.budget_bytes = refused.smallest_budget_bytes;
    const Solution found = answer(question, kHost);
    ASSERT_TRUE(found.found());
    expect_sound(question, found, kHost);
  });
  EXPECT_GT(below, 0);
}

TEST(CarryTest, TheLeastBudgetIsNotAboveThatWithoutCopies) {
  int below = 0;
  for_steps([&](const Graph& graph, const Costs& costs) {
    const Solution without = solve(graph, costs, {.planner = "auto", .work = kWork});
    const Costs linked = with_link(costs, kRate);
    const Solution with = solve(graph, linked, {.planner = "auto", .host_budget_bytes = kHost, .work = kWork});
    ASSERT_TRUE(with.found());
    expect_sound({.graph = graph, .costs = linked, .budget_bytes = with.budget_bytes}, with, kHost);
    EXPECT_LE(with.budget_bytes, without.budget_bytes);
    below += with.budget_bytes < without.budget_bytes ? 1 : 0;
  });
  EXPECT_GT(below, 0);
}

TEST(CarryTest, ACurveWithCopiesIsNowhereSlower) {
  int copying = 0;
  for_steps([&](const Graph& graph, const Costs& costs) {
    const Curve without = curve(graph, costs, {.planner = "auto", .work = kWork});
    const Costs linked = with_link(costs, kRate);
    const Curve with = curve(graph, linked, {.planner = "auto", .host_budget_bytes = kHost, .work = kWork});
    std::optional<std::int64_t> before_ns;
    for (const Solution& point : with.points) {
      expect_sound({.graph = graph, .costs = linked, .budget_bytes = point.simulation.peak_bytes}, point, kHost);
      EXPECT_LT(point.simulation.time_ns, before_ns.value_or(INT64_MAX));
      EXPECT_LE(point.lower_bound_ns.value_or(0), point.simulation.time_ns);
      before_ns = point.simulation.time_ns;
      copying += copies(point.plan) ? 1 : 0;
    }
    for (const Solution& point : without.points) {
      EXPECT_TRUE(std::ranges::any_of(with.points, [&](const Solution& other) {
        return other.simulation.peak_bytes <= point.simulation.peak_bytes &&
               other.simulation.time_ns <= point.simulation.time_ns;
      }));
    }
  });
  EXPECT_GT(copying, static_cast<int>(kCarrySteps / 4));
}

}  // namespace
}  // namespace reprise::test
