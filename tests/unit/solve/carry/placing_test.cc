#include "solve/carry/placing.h"

#include <gtest/gtest.h>

#include "fixtures/odd_plans.h"
#include "fixtures/steps.h"
#include "reprise/graph_builder.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"

namespace reprise::detail {
namespace {

constexpr auto kMade = Placing::First::kMade;
constexpr auto kNeededLast = Placing::First::kNeededLast;

// The frees are those of liveness.
Plan in_order(const Graph& graph, std::vector<Action> actions) {
  Plan plan{std::move(actions)};
  EXPECT_FALSE(validate(graph, plan));
  return plan;
}

std::string placed(const CostedGraph& step, const Plan& base, std::int64_t budget_bytes, std::int64_t bytes_per_ns,
                   Placing::First first = kMade, std::int64_t least_bytes = 1) {
  Placing placing(step.graph, step.costs, base, least_bytes);
  const Link pace = *test::with_link({}, bytes_per_ns).link;
  if (!placing.let_go(budget_bytes, {.first = first, .pace = pace})) return "does not fit";
  const Plan plan = placing.plan(pace);
  EXPECT_FALSE(validate(step.graph, plan));
  EXPECT_LE(simulate(step.graph, test::with_link(step.costs, 1), plan).peak_bytes, budget_bytes);
  return test::text_of(plan);
}

const std::vector<Action> kKept{Action::compute(op_id(0)), Action::compute(op_id(1)), Action::compute(op_id(2)),
                                Action::compute(op_id(3)), Action::compute(op_id(4)), Action::free(value_id(2)),
                                Action::compute(op_id(5)), Action::free(value_id(1)), Action::free(value_id(3)),
                                Action::compute(op_id(6)), Action::free(value_id(0)), Action::free(value_id(4))};

TEST(PlacingTest, StoresEarlyFreesLateAndFetchesInTime) {
  const CostedGraph step = test::three_layers_step();
  const Plan base = in_order(step.graph, kKept);
  EXPECT_EQ(placed(step, base, 310, 10), "c0 c1 c2 c3 c4 f2 c5 f1 f3 c6 f0 f4");
  // At 220 bytes a leaves before F3, the first run that does not fit; there is room for it again once c is freed.
  EXPECT_EQ(placed(step, base, 220, 10), "c0 s0 c1 f0 c2 c3 c4 f2 b0 c5 f1 f3 c6 f0 f4");
  // With less than that, only just before it is read.
  EXPECT_EQ(placed(step, base, 219, 10), "c0 s0 c1 f0 c2 c3 c4 f2 c5 f1 f3 b0 c6 f0 f4");
  EXPECT_EQ(placed(step, base, 199, 10), "does not fit");
}

TEST(PlacingTest, CopiesNothingThatIsTooSmall) {
  const CostedGraph step = test::three_layers_step();
  const Plan base = in_order(step.graph, kKept);
  EXPECT_NE(placed(step, base, 220, 10, kMade, 100), "does not fit");
  EXPECT_EQ(placed(step, base, 220, 10, kMade, 101), "does not fit");
}

// Ops 0 and 1 make x and y, which backward reads in the same order; op 2 has a workspace.
CostedGraph first_in_first_out() {
  GraphBuilder builder("first in, first out");
  const ValueId x = builder.value(100);
  const ValueId y = builder.value(100);
  const ValueId g = builder.value(10);
  const ValueId h = builder.value(10);
  builder.op({.name = "x", .time_ns = 10, .outputs = {x}});
  builder.op({.name = "y", .time_ns = 10, .outputs = {y}});
  builder.op({.name = "caller", .phase = Phase::kCaller, .time_ns = 10, .workspace_bytes = 90});
  builder.op({.name = "g", .phase = Phase::kBackward, .time_ns = 10, .inputs = {x}, .outputs = {g}});
  builder.op({.name = "h", .phase = Phase::kBackward, .time_ns = 10, .inputs = {y, g}, .outputs = {h}});
  builder.output(h);
  return std::move(builder).build();
}

TEST(PlacingTest, LetsGoOfWhatWasMadeFirstOrOfWhatIsNeededLast) {
  const CostedGraph step = first_in_first_out();
  const Plan base =
      in_order(step.graph, {Action::compute(op_id(0)), Action::compute(op_id(1)), Action::compute(op_id(2)),
                            Action::compute(op_id(3)), Action::free(value_id(0)), Action::compute(op_id(4)),
                            Action::free(value_id(1)), Action::free(value_id(2))});
  EXPECT_EQ(placed(step, base, 210, 10, kMade), "c0 s0 c1 f0 c2 b0 c3 f0 c4 f1 f2");
  EXPECT_EQ(placed(step, base, 210, 10, kNeededLast), "c0 c1 s1 f1 c2 b1 c3 f0 c4 f1 f2");
  // With room for one of them alone, both leave.
  EXPECT_EQ(placed(step, base, 190, 10, kMade), "c0 s0 f0 c1 s1 c2 f1 b0 c3 f0 b1 c4 f1 f2");
}

TEST(PlacingTest, LetsGoOfWhatHasBeenStoredAndIsJustEnough) {
  // x (100 bytes) and y (40 bytes) are made, and the caller's op needs 30 bytes more than there are.
  GraphBuilder builder("two sizes");
  const ValueId x = builder.value(100);
  const ValueId y = builder.value(40);
  const ValueId g = builder.value(10);
  builder.op({.name = "x", .time_ns = 10, .outputs = {x}});
  builder.op({.name = "y", .time_ns = 10, .outputs = {y}});
  builder.op({.name = "more", .time_ns = 10, .outputs = {}});
  builder.op({.name = "caller", .phase = Phase::kCaller, .time_ns = 10, .workspace_bytes = 50});
  builder.op({.name = "g", .phase = Phase::kBackward, .time_ns = 10, .inputs = {x, y}, .outputs = {g}});
  builder.output(g);
  const CostedGraph step = std::move(builder).build();
  const Plan base =
      in_order(step.graph, {Action::compute(op_id(0)), Action::compute(op_id(1)), Action::compute(op_id(2)),
                            Action::compute(op_id(3)), Action::compute(op_id(4)), Action::free(value_id(0)),
                            Action::free(value_id(1))});
  EXPECT_EQ(placed(step, base, 160, 10, kMade), "c0 s0 c1 c2 f0 c3 b0 c4 f0 f1");
  EXPECT_EQ(placed(step, base, 160, 10, Placing::First::kFits), "c0 c1 s1 c2 f1 c3 b1 c4 f0 f1");
}

// A run that makes a value again finds it live under the base, and so it must be under the new plan.
TEST(PlacingTest, BringsBackWhatIsMadeASecondTime) {
  const CostedGraph step = first_in_first_out();
  const Plan base =
      in_order(step.graph, {Action::compute(op_id(0)), Action::compute(op_id(1)), Action::compute(op_id(2)),
                            Action::compute(op_id(0)), Action::compute(op_id(3)), Action::free(value_id(0)),
                            Action::compute(op_id(4)), Action::free(value_id(1)), Action::free(value_id(2))});
  EXPECT_EQ(placed(step, base, 300, 10), "c0 c1 c2 c0 c3 f0 c4 f1 f2");
  EXPECT_EQ(placed(step, base, 210, 10), "c0 s0 c1 s1 f0 c2 f1 b0 c0 b1 c3 f0 c4 f1 f2");
}

TEST(PlacingTest, LeavesMemoryThatPlansMayNotFree) {
  GraphBuilder builder("pinned");
  const ValueId held = builder.value(100);
  const ValueId parameter = builder.resident(100);
  const ValueId g = builder.value(10);
  builder.op({.name = "f", .time_ns = 10, .inputs = {parameter}, .outputs = {held}});
  builder.op({.name = "caller", .phase = Phase::kCaller, .workspace_bytes = 50});
  builder.op({.name = "g", .phase = Phase::kBackward, .time_ns = 10, .inputs = {held, parameter}, .outputs = {g}});
  builder.hold(held);
  builder.output(g);
  const CostedGraph step = std::move(builder).build();
  const Plan base =
      in_order(step.graph, {Action::compute(op_id(0)), Action::compute(op_id(1)), Action::compute(op_id(2))});
  EXPECT_EQ(placed(step, base, 250, 10), "c0 c1 c2");
  EXPECT_EQ(placed(step, base, 249, 10), "does not fit");
}

}  // namespace
}  // namespace reprise::detail
