// Compares plans that may store values in the host's memory, and the lower bound beside them, with all schedules of
// tiny steps: the bound is never above the best schedule in the plan's order of backward ops, and no plan is below it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "oracle/copying_schedules.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/solve.h"
#include "support/random.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::uint64_t kTinySteps = kSmallTests ? 25 : 150;

// Forward ops in a chain, and as many backward ops; each reads a gradient and what one forward op made, or two of them.
CostedGraph tiny_step(Random& random) {
  GraphBuilder b("tiny step");
  const int layers = random.between(2, 3);
  std::vector<ValueId> made;
  for (int i = 0; i < layers; ++i) {
    std::vector<ValueId> inputs;
    if (i > 0) inputs.push_back(made.back());
    made.push_back(b.value(random.between(2, 10)));
    b.op({.name = "f",
          .time_ns = random.between(1, 9),
          .workspace_bytes = random.chance(20) ? random.between(1, 5) : 0,
          .once = random.chance(10),
          .inputs = inputs,
          .outputs = {made.back()}});
  }
  b.op({.name = "caller", .phase = Phase::kCaller, .workspace_bytes = random.chance(20) ? random.between(1, 5) : 0});
  std::vector<ValueId> gradient;
  for (int i = layers - 1; i >= 0; --i) {
    std::vector<ValueId> inputs = gradient;
    inputs.push_back(made[static_cast<std::size_t>(i)]);
    if (i > 0 && random.chance(30)) inputs.push_back(made[static_cast<std::size_t>(i) - 1]);
    gradient = {b.value(random.between(1, 3))};
    b.op({.name = "b",
          .phase = Phase::kBackward,
          .time_ns = random.between(1, 12),
          .inputs = inputs,
          .outputs = gradient});
  }
  b.output(gradient.front());
  return b.build();
}

std::vector<OpId> backward_order(const Plan& plan, const Graph& step) {
  std::vector<OpId> order;
  for (const Action& action : plan.actions) {
    if (!action.computes() || step.phase(action.op()) != Phase::kBackward) continue;
    if (std::ranges::find(order, action.op()) == order.end()) order.push_back(action.op());
  }
  return order;
}

struct CopyTally {
  int plans = 0;
  int copying = 0;      // plans that copy
  int best = 0;         // plans that no schedule beats
  int above_plain = 0;  // bounds that prove that something has to wait or be computed again
  int tight = 0;        // those of these bounds that equal the best schedule
};

void expect_sound_copies(const Graph& step, const Costs& costs, CopyTally& tally) {
  const Solution plain = solve(step, costs, {.planner = "none"});
  const std::int64_t floor = solve(step, costs, {.planner = "auto"}).floor_bytes;
  for (std::int64_t i = 0; i <= 2; ++i) {
    const std::int64_t budget = floor + (plain.budget_bytes - floor) * i / 3;
    const Solution found = solve(step, costs, {.budget_bytes = budget, .host_budget_bytes = 1'000});
    if (!found.found()) continue;
    SCOPED_TRACE("at " + std::to_string(budget));
    const auto least = least_copying_time(step, costs, budget, backward_order(found.plan, step));
    ASSERT_TRUE(least.has_value());
    ASSERT_TRUE(found.lower_bound_ns.has_value());
    EXPECT_LE(*found.lower_bound_ns, *least);
    EXPECT_GE(found.simulation.time_ns, *least);
    ++tally.plans;
    tally.copying += copies(found.plan) ? 1 : 0;
    tally.best += found.simulation.time_ns == *least ? 1 : 0;
    const bool above = *found.lower_bound_ns > plain.simulation.time_ns;
    tally.above_plain += above ? 1 : 0;
    tally.tight += above && *found.lower_bound_ns == *least ? 1 : 0;
  }
}

TEST(CopyingBoundTest, IsNeverAboveTheBestOfAllSchedules) {
  CopyTally tally;
  for (std::uint64_t seed = 0; seed < kTinySteps && !HasFailure(); ++seed) {
    Random random(seed);
    auto [step, costs] = tiny_step(random);
    costs.link = Link{.down_bytes_per_s = (1 + random.below(6)) * 500'000'000,
                      .up_bytes_per_s = (1 + random.below(6)) * 500'000'000,
                      .latency_ns = random.below(2),
                      .both_ways = random.chance(80)};
    SCOPED_TRACE("seed " + std::to_string(seed) + '\n' + format_graph(step, costs));
    expect_sound_copies(step, costs, tally);
  }
  EXPECT_GT(tally.plans, static_cast<int>(kTinySteps));
  EXPECT_GT(tally.copying, tally.plans / 10);
  EXPECT_GT(tally.best, tally.plans / 2);
  EXPECT_GT(tally.above_plain, tally.plans / 25);
  EXPECT_GT(tally.tight, 0);
  RecordProperty("tally", std::to_string(tally.plans) + " plans, " + std::to_string(tally.copying) + " copying, " +
                              std::to_string(tally.best) + " best, " + std::to_string(tally.above_plain) +
                              " bounds above, " + std::to_string(tally.tight) + " tight");
}

}  // namespace
}  // namespace reprise::test
