#include "reprise/plan_family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fixtures/steps.h"
#include "reprise/graph_builder.h"
#include "reprise/reprise.h"
#include "support/costed.h"
#include "support/input_error.h"
#include "support/short_actions.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kPlainPeak = 310;
constexpr std::int64_t kPlainTime = 60;

class PlanFamilyTest : public ::testing::Test {
 protected:
  CostedGraph step_ = three_layers_step();
  PlanFamily family_{step_.graph, step_.costs};
  // a is computed again for the last backward op. The peak is at B3, with b, c and a gradient.
  const Plan again_{{c(0), c(1), f(0), c(2), c(3), c(4), f(2), c(5), f(1), f(3), c(0), c(6), f(0), f(4)}};
  static constexpr std::int64_t kAgainPeak = 210;
  static constexpr std::int64_t kAgainTime = 70;

  [[nodiscard]] std::int64_t fastest_ns(const Costs& costs, std::int64_t budget_bytes) const {
    const auto found = family_.fastest(step_.graph, costs, budget_bytes);
    return found ? found->simulation.time_ns : 0;
  }
};

TEST_F(PlanFamilyTest, BeginsWithThePlanWithoutRecomputation) {
  const auto found = family_.fastest(step_.graph, step_.costs, kPlainPeak);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->plan, solve(step_, {.planner = "none"}).plan);
  EXPECT_EQ(found->simulation, simulate(step_, found->plan));
  EXPECT_FALSE(family_.fastest(step_.graph, step_.costs, kPlainPeak - 1));
  EXPECT_EQ(family_.smallest_peak_bytes(step_.graph, step_.costs), kPlainPeak);
}

TEST_F(PlanFamilyTest, TakesTheFastestThatFits) {
  EXPECT_TRUE(family_.add(again_));
  EXPECT_FALSE(family_.add(again_));  // it is kept already
  EXPECT_EQ(family_.size(), 2);
  EXPECT_EQ(fastest_ns(step_.costs, kPlainPeak), kPlainTime);
  EXPECT_EQ(fastest_ns(step_.costs, kPlainPeak - 1), kAgainTime);
  EXPECT_EQ(fastest_ns(step_.costs, kAgainPeak), kAgainTime);
  EXPECT_EQ(fastest_ns(step_.costs, kAgainPeak - 1), 0);
  EXPECT_EQ(family_.smallest_peak_bytes(step_.graph, step_.costs), kAgainPeak);
}

TEST_F(PlanFamilyTest, PlansAreJudgedAtTheCostsOfTheQuestion) {
  family_.add(again_);
  Costs costs = step_.costs;
  costs.value_bytes[0] = 1;  // a hardly takes memory any more
  costs.time_ns[0] = 3;      // and is quickly made
  EXPECT_EQ(fastest_ns(costs, 211), kPlainTime - 7);
  EXPECT_EQ(fastest_ns(costs, 210), kPlainTime - 7 + 3);
  for (std::int64_t& bytes : costs.value_bytes) bytes *= 2;
  EXPECT_EQ(family_.smallest_peak_bytes(step_.graph, costs), 2 * kAgainPeak);
}

TEST_F(PlanFamilyTest, OfEquallyFastPlansItTakesTheOneOfLeastPeak) {
  Plan late = solve(step_, {.planner = "none"}).plan;
  std::erase(late.actions, f(2));  // c stays to the end
  family_.add(late);
  const auto found = family_.fastest(step_.graph, step_.costs, 1'000);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->simulation.peak_bytes, kPlainPeak);
  family_.add(again_);
  Costs costs = step_.costs;
  costs.time_ns[0] = 0;
  EXPECT_EQ(family_.fastest(step_.graph, costs, 1'000)->plan, again_);
}

TEST_F(PlanFamilyTest, APlanWhoseTimeDoesNotFitIntoANumberIsNoAnswer) {
  Plan often = again_;
  often.actions.insert(often.actions.end(), 40, c(0));
  family_.add(often);
  EXPECT_EQ(fastest_ns(step_.costs, kPlainPeak - 1), kAgainTime + 400);
  Costs costs = step_.costs;
  costs.time_ns[0] = Costs::kMaxTotalTime - 100;
  EXPECT_EQ(fastest_ns(costs, kPlainPeak - 1), 0);
  EXPECT_EQ(family_.smallest_peak_bytes(step_.graph, costs), kPlainPeak);
}

TEST_F(PlanFamilyTest, AdaptsAPlanWhereNoneFits) {
  EXPECT_FALSE(family_.fastest(step_.graph, step_.costs, kAgainPeak));
  const auto found = family_.adapted(step_.graph, step_.costs, kAgainPeak);
  ASSERT_TRUE(found);
  EXPECT_FALSE(validate(step_.graph, found->plan));
  EXPECT_EQ(found->simulation, simulate(step_, found->plan));
  EXPECT_LE(found->simulation.peak_bytes, kAgainPeak);
  EXPECT_EQ(found->simulation.time_ns, kAgainTime);
  EXPECT_EQ(family_.size(), 1);  // The family is as it was.
  EXPECT_FALSE(family_.adapted(step_.graph, step_.costs, kAgainPeak - 1));
  EXPECT_FALSE(family_.adapted(step_.graph, step_.costs, kAgainPeak, /*work=*/0));
  EXPECT_EQ(family_.adapted(step_.graph, step_.costs, kPlainPeak),
            family_.fastest(step_.graph, step_.costs, kPlainPeak));
}

TEST_F(PlanFamilyTest, AdaptingMakesAPlanFasterIfThereIsRoom) {
  Plan often = again_;
  often.actions.insert(often.actions.end() - 4, c(0));  // a second copy, which nobody needs
  family_.add(often);
  EXPECT_EQ(fastest_ns(step_.costs, kPlainPeak - 1), kAgainTime + 10);
  EXPECT_EQ(family_.adapted(step_.graph, step_.costs, kPlainPeak - 1)->simulation.time_ns, kAgainTime);
}

TEST_F(PlanFamilyTest, APlanIsFarFromTheBoundIfItComputesTooMuchAgain) {
  const auto far = [&](const Plan& plan) {
    return is_far_from_bound(step_.graph, step_.costs, {.plan = plan, .simulation = simulate(step_, plan)});
  };
  EXPECT_FALSE(far(solve(step_, {.planner = "none"}).plan));
  EXPECT_FALSE(far(again_));  // One run of 10 ns in 70 is needed.
  Plan often = again_;
  often.actions.insert(often.actions.end() - 4, c(0));
  EXPECT_TRUE(far(often));
}

TEST_F(PlanFamilyTest, RefusesWhatDoesNotBelongToIt) {
  EXPECT_EQ(input_error([&] { family_.add(Plan{{c(1)}}); }),
            "this is not a plan for the family's graph: action 0: computes op 1 'F2', whose input value 0 is not live");
  Plan copying = again_;
  copying.actions.insert(copying.actions.begin() + 1, s(0));
  EXPECT_EQ(input_error([&] { family_.add(copying); }),
            "a family does not take plans that store values in the host's memory");
  EXPECT_EQ(family_.size(), 1);
  const CostedGraph other = dropout_step();
  EXPECT_EQ(input_error([&] { static_cast<void>(family_.fastest(other.graph, other.costs, 1)); }),
            "the graph '" + other.graph.name() + "' does not have the structure of the family's");
  EXPECT_NE(input_error([&] { static_cast<void>(family_.smallest_peak_bytes(step_.graph, Costs{})); }), "");
  EXPECT_EQ(input_error([&] { PlanFamily(step_.graph, step_.costs, 2); }), "a family must keep at least 3 plans");
  GraphBuilder forward("forward");
  forward.op({.name = "only", .outputs = {forward.value(1)}});
  const CostedGraph unfinished = forward.build();
  EXPECT_EQ(input_error([&] { PlanFamily(unfinished.graph, unfinished.costs); }),
            "a family needs a step with backward ops; complete_backward makes one");
}

// Layers in a row: x0 -> x1 -> ..., and backward ops that read each of them.
CostedGraph chain_step(const char* name, std::int64_t layers) {
  GraphBuilder g(name);
  std::vector<ValueId> x = {g.arriving(100)};
  for (std::int64_t i = 0; i < layers; ++i) {
    x.push_back(g.value(100 + 10 * (i % 3)));
    g.op({.name = name, .time_ns = 10 + i % 4, .inputs = {*(x.end() - 2)}, .outputs = {x.back()}});
  }
  ValueId gradient = g.value(1);
  g.op({.name = "caller", .phase = Phase::kCaller, .inputs = {x.back()}, .outputs = {gradient}});
  for (std::int64_t i = layers; i-- > 0;) {
    const ValueId next = g.value(100);
    g.op({.name = name,
          .phase = Phase::kBackward,
          .time_ns = 20,
          .inputs = {gradient, x[static_cast<std::size_t>(i)]},
          .outputs = {next}});
    gradient = next;
  }
  g.output(gradient);
  return g.build();
}

TEST(PlanFamilyOfAChainTest, ThinsByPeak) {
  const auto [graph, costs] = chain_step("layer", 30);
  const Curve all = curve(graph, costs, {.work = 2'000'000});
  ASSERT_GT(all.points.size(), 12);
  constexpr std::size_t kMost = 8;
  PlanFamily family(graph, costs, kMost);
  for (const Solution& point : all.points) family.add(point.plan);
  EXPECT_LE(family.size(), kMost);
  EXPECT_GT(family.size(), kMost / 2);
  const std::vector<Plan> kept = family.plans();
  EXPECT_NE(std::ranges::find(kept, solve(graph, costs, {.planner = "none"}).plan), kept.end());
  EXPECT_EQ(family.smallest_peak_bytes(graph, costs), all.points.front().simulation.peak_bytes);
  // They are spread over the range.
  std::vector<std::int64_t> peaks;
  peaks.reserve(kept.size());
  for (const Plan& plan : kept) peaks.push_back(simulate(graph, costs, plan).peak_bytes);
  EXPECT_TRUE(std::ranges::is_sorted(peaks, std::ranges::greater{}));
  const std::int64_t range = peaks.front() - peaks.back();
  for (std::size_t i = 1; i < peaks.size(); ++i) {
    EXPECT_LE(peaks[i - 1] - peaks[i], range / 2);
  }
}

TEST(PlanFamilyOfAChainTest, TheOrderInWhichPlansAreAddedDoesNotMatter) {
  const auto [graph, costs] = chain_step("layer", 20);
  std::vector<Plan> plans;
  for (const Solution& point : curve(graph, costs, {.work = 1'000'000}).points) plans.push_back(point.plan);
  PlanFamily forwards(graph, costs, 6);
  PlanFamily backwards(graph, costs, 6);
  for (const Plan& plan : plans) forwards.add(plan);
  std::ranges::reverse(plans);
  for (const Plan& plan : plans) backwards.add(plan);
  for (const Plan& plan : plans) backwards.add(plan);
  EXPECT_EQ(forwards.plans(), backwards.plans());
  PlanFamily again(graph, costs, 6);
  for (const Plan& plan : forwards.plans()) again.add(plan);
  EXPECT_EQ(again.plans(), forwards.plans());
}

TEST(PlanFamilyOfAChainTest, NamesDoNotMatter) {
  const auto [graph, costs] = chain_step("layer", 4);
  const auto [other, other_costs] = chain_step("couche", 4);
  EXPECT_TRUE(graph.same_structure(other));
  EXPECT_NE(graph, other);
  EXPECT_TRUE(PlanFamily(graph, costs).fastest(other, other_costs, 10'000));
  EXPECT_FALSE(graph.same_structure(chain_step("layer", 5).graph));
}

}  // namespace
}  // namespace reprise::test
