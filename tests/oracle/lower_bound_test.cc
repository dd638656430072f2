// Compares the lower bounds of `auto` with all schedules of small steps: the bound on time is never above the best
// schedule in the plan's order of backward ops, the floor is never above the smallest budget of any order, and no plan
// is below either.
#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/ordered_schedules.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/solve.h"
#include "support/random.h"
#include "support/random_step.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::uint64_t kSeeds = kSmallTests ? 150 : 1200;

bool small_enough(const Graph& step) {
  if (step.num_values() > 13 || step.num_ops() > 14) return false;
  for (std::size_t v = 0; v < step.num_values(); ++v) {
    const ValueId old = step.overwrites(value_id(v));
    if (old != kNoValue && step.pinned(old)) return false;
  }
  return true;
}

// The order in which backward ops run for the first time; if there is no plan, the order of the graph.
std::vector<OpId> order_of(const Plan& plan, const Graph& step) {
  std::vector<OpId> order;
  for (const Action& action : plan.actions) {
    if (!action.computes() || step.phase(action.op()) != Phase::kBackward) continue;
    if (std::ranges::find(order, action.op()) == order.end()) order.push_back(action.op());
  }
  for (std::size_t i = 0; i < step.num_ops(); ++i) {
    if (plan.actions.empty() && step.phase(op_id(i)) == Phase::kBackward) order.push_back(op_id(i));
  }
  return order;
}

struct Tally {
  int steps = 0;
  int reordered = 0;    // plans with another order of backward ops
  int above_plain = 0;  // bounds that prove that something has to be computed again
  int tight = 0;        // those of these bounds that equal the best schedule
};

void expect_sound(const Graph& step, const Costs& costs, Tally& tally) {
  const Solution plain = solve(step, costs, {.planner = "none"});
  const Solution least = solve(step, costs, {.planner = "auto"});
  const std::int64_t floor = least.floor_bytes;
  EXPECT_LE(floor, least.budget_bytes);
  if (floor > 0) {
    EXPECT_FALSE(least_time(step, costs, floor - 1, BackwardOrder::kAny).has_value());
  }
  const auto fastest = least_time(step, costs, plain.budget_bytes, BackwardOrder::kAny);
  ASSERT_TRUE(fastest.has_value());
  for (std::int64_t i = 0; i <= 3; ++i) {
    const std::int64_t budget = floor + (plain.budget_bytes - floor) * i / 4;
    const Solution found = solve(step, costs, {.planner = "auto", .budget_bytes = budget});
    const auto best = least_time(step, costs, budget, order_of(found.plan, step));
    ASSERT_TRUE(found.lower_bound_ns.has_value());
    tally.reordered += found.reordered ? 1 : 0;
    if (best) {
      EXPECT_LE(*found.lower_bound_ns, *best) << "at " << budget;
      tally.above_plain += *found.lower_bound_ns > *fastest ? 1 : 0;
      tally.tight += *found.lower_bound_ns == *best && *best > *fastest ? 1 : 0;
    }
    if (!found.found()) continue;
    const auto any = least_time(step, costs, budget, BackwardOrder::kAny);
    ASSERT_TRUE(any.has_value());
    EXPECT_GE(found.simulation.time_ns, *any);
  }
  ++tally.steps;
}

TEST(LowerBoundTest, IsNeverAboveTheBestOfAllSchedules) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    Random random(seed);
    const StepOptions options{.forward_ops = random.between(2, 5), .backward_ops = random.between(1, 4)};
    const auto [step, costs] = random_step(options, [&](std::int64_t bound) { return random.below(bound); });
    if (!small_enough(step)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + '\n' + format_graph(step, costs));
    expect_sound(step, costs, tally);
  }
  EXPECT_GT(tally.steps, static_cast<int>(kSeeds / 8));
  EXPECT_GT(tally.above_plain, tally.steps / 20);
  EXPECT_GT(tally.tight, 0);
  EXPECT_GT(tally.reordered, 0);
}

TEST(LowerBoundTest, ProvesWhatItsExampleSays) {
  // Two values of 10 bytes (times 3 and 5) are needed after the caller's op, which leaves 12 bytes for them.
  GraphBuilder b("two values");
  const ValueId x = b.resident(1);
  const ValueId first = b.value(10);
  const ValueId second = b.value(10);
  const ValueId seed = b.value(8);
  const ValueId gradient = b.value(1);
  b.op({.name = "f", .time_ns = 3, .inputs = {x}, .outputs = {first}});
  b.op({.name = "g", .time_ns = 5, .inputs = {x}, .outputs = {second}});
  b.op({.name = "caller", .phase = Phase::kCaller, .workspace_bytes = 9, .outputs = {seed}});
  b.op({.name = "h", .phase = Phase::kBackward, .time_ns = 1, .inputs = {first, second, seed}, .outputs = {gradient}});
  b.output(gradient);
  const auto [step, costs] = b.build();
  const Solution found = solve(step, costs, {.planner = "auto", .budget_bytes = 30});
  EXPECT_EQ(least_time(step, costs, 30, BackwardOrder::kCaptured),
            9);  // No op of forward has to run before the caller's op.
  EXPECT_LE(*found.lower_bound_ns, 9);
}

}  // namespace
}  // namespace reprise::test
