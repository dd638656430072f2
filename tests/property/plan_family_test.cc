// On random steps, with costs of other sizes: what a family answers is legal there and inside the budget, and it does
// not depend on the order in which its plans arrived.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "property/plans_of_steps.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

constexpr std::uint64_t kFamilySteps = kSmallTests ? 15 : 80;
constexpr std::size_t kFewPlans = 4;

// Every number is another one, of up to three times the size. What overwrites a value keeps that value's size.
Costs of_another_size(const Graph& graph, const Costs& costs, Random& random) {
  const auto changed = [&](std::int64_t number) { return number * random.between(1, 12) / 4; };
  Costs other = costs;
  for (std::int64_t& time_ns : other.time_ns) time_ns = changed(time_ns);
  for (std::int64_t& bytes : other.workspace_bytes) bytes = changed(bytes);
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const ValueId old = graph.overwrites(value_id(i));
    other.value_bytes[i] = old == kNoValue ? changed(costs.value_bytes[i]) : other.value_bytes[index(old)];
  }
  return other;
}

std::vector<Plan> some_plans(const Graph& graph, const Costs& costs) {
  std::vector<Plan> plans;
  for (const char* planner : {"auto", "chen", "revolve"}) {
    for (const Solution& point : curve(graph, costs, {.planner = planner, .work = 200'000}).points) {
      plans.push_back(point.plan);
    }
  }
  return plans;
}

PlanFamily family_of(const Graph& graph, const Costs& costs, const std::vector<Plan>& plans, std::size_t most) {
  PlanFamily family(graph, costs, most);
  for (const Plan& plan : plans) family.add(plan);
  return family;
}

void expect_sound(const Graph& graph, const Costs& costs, const PlanFamily::Answer& found, std::int64_t budget_bytes) {
  ASSERT_FALSE(validate(graph, found.plan));
  ASSERT_EQ(simulate(graph, costs, found.plan), found.simulation);
  ASSERT_LE(found.simulation.peak_bytes, budget_bytes);
}

void expect_not_beaten(const Graph& graph, const Costs& costs, const PlanFamily::Answer& found,
                       std::int64_t budget_bytes, const std::vector<Plan>& rivals) {
  for (const Plan& plan : rivals) {
    const Simulation rival = simulate(graph, costs, plan);
    EXPECT_TRUE(rival.peak_bytes > budget_bytes || found.simulation.time_ns <= rival.time_ns);
  }
}

// `check(graph, costs, plans, other_costs)`: plans made at the costs, to be used at the others.
template <typename Check>
void for_two_sizes(Check check) {
  for (std::uint64_t seed = 0; seed < kFamilySteps && !testing::Test::HasFatalFailure(); ++seed) {
    const auto [graph, costs] = some_random_step(seed);
    Random random(seed + 1'000);
    SCOPED_TRACE("seed " + std::to_string(seed) + '\n' + format_graph(graph, costs));
    check(graph, costs, some_plans(graph, costs), of_another_size(graph, costs, random));
  }
}

TEST(PlanFamilyPropertyTest, AnswersAreTheBestOfThePlansThatAreKept) {
  int recomputing = 0;
  for_two_sizes([&](const Graph& graph, const Costs& costs, const std::vector<Plan>& plans, const Costs& other) {
    for (const std::size_t most : {kFewPlans, PlanFamily::kMostPlans}) {
      const PlanFamily family = family_of(graph, costs, plans, most);
      ASSERT_LE(family.size(), most);
      const std::int64_t least = family.smallest_peak_bytes(graph, other);
      const Simulation plain = solve(graph, other, {.planner = "none"}).simulation;
      EXPECT_FALSE(family.fastest(graph, other, least - 1));
      for (const std::int64_t budget : {least, (least + plain.peak_bytes) / 2, plain.peak_bytes}) {
        const auto found = family.fastest(graph, other, budget);
        ASSERT_TRUE(found);
        expect_sound(graph, other, *found, budget);
        recomputing += found->simulation.recompute_ns > 0 ? 1 : 0;
        expect_not_beaten(graph, other, *found, budget, family.plans());
        EXPECT_TRUE(plain.peak_bytes > budget || found->simulation.time_ns <= plain.time_ns);
      }
    }
  });
  EXPECT_GT(recomputing, static_cast<int>(kFamilySteps / 4));
}

TEST(PlanFamilyPropertyTest, AdaptedPlansAreSoundAndNeverSlower) {
  int lower = 0;
  int faster = 0;
  for_two_sizes([&](const Graph& graph, const Costs& costs, const std::vector<Plan>& plans, const Costs& other) {
    const PlanFamily family = family_of(graph, costs, plans, kFewPlans);
    const std::int64_t least = family.smallest_peak_bytes(graph, other);
    const Solution best = solve(graph, other, {.work = 200'000});
    for (const std::int64_t budget : {best.floor_bytes - 1, best.budget_bytes, least, least + least / 4}) {
      const auto known = family.fastest(graph, other, budget);
      const auto found = family.adapted(graph, other, budget, /*work=*/200'000);
      ASSERT_TRUE(!known || found);
      if (!found) continue;
      ASSERT_GE(budget, best.floor_bytes);
      expect_sound(graph, other, *found, budget);
      ASSERT_TRUE(!known || found->simulation.time_ns <= known->simulation.time_ns);
      lower += known ? 0 : 1;
      faster += known && found->simulation.time_ns < known->simulation.time_ns ? 1 : 0;
    }
  });
  EXPECT_GT(lower, 0);
  EXPECT_TRUE(kSmallTests || faster > 0);  // Few steps are enough only for the first.
}

TEST(PlanFamilyPropertyTest, NoPlanIsLostAtItsOwnCostsIfThereIsRoomForAll) {
  for_two_sizes([](const Graph& graph, const Costs& costs, const std::vector<Plan>& plans, const Costs&) {
    const PlanFamily family = family_of(graph, costs, plans, 100'000);  // cells of a byte
    for (const Plan& plan : plans) {
      const Simulation own = simulate(graph, costs, plan);
      const auto found = family.fastest(graph, costs, own.peak_bytes);
      ASSERT_TRUE(found);
      EXPECT_LE(found->simulation.time_ns, own.time_ns);
    }
  });
}

TEST(PlanFamilyPropertyTest, TheOrderOfPlansDoesNotMatter) {
  for_two_sizes([](const Graph& graph, const Costs& costs, std::vector<Plan> plans, const Costs& other) {
    const PlanFamily family = family_of(graph, costs, plans, kFewPlans);
    Random random(plans.size());
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = plans.size(); i > 1; --i) {
        std::swap(plans[i - 1], plans[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
      }
      const PlanFamily shuffled = family_of(graph, costs, plans, kFewPlans);
      ASSERT_EQ(shuffled.plans(), family.plans());
      const std::int64_t budget = family.smallest_peak_bytes(graph, other);
      ASSERT_EQ(shuffled.fastest(graph, other, budget), family.fastest(graph, other, budget));
    }
  });
}

}  // namespace
}  // namespace reprise::test
