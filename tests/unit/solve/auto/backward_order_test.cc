#include "solve/auto/backward_order.h"

#include <gtest/gtest.h>

#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/solve.h"
#include "reprise/validate.h"
#include "solve/planner_knobs.h"

namespace reprise::test {
namespace {

using detail::Choice;
using detail::Cost;
using detail::Evaluator;
using detail::OrderSearch;
using detail::Pool;
using detail::StepModel;

// Two layers. Backward makes the gradient of the last weight (400 bytes), then that of the value between the layers
// (10), then that of the first weight (5), after which the 100 bytes of `x` can be freed. With `hand_over`, a last op
// reads both gradients, as in captured steps.
CostedGraph two_weights_step(bool hand_over = false) {
  GraphBuilder b("two weights");
  const ValueId w = b.resident(1);
  const ValueId x = b.arriving(100);
  const ValueId y = b.value(10);
  const ValueId seed = b.value(10);
  const ValueId big = b.value(400);
  const ValueId between = b.value(10);
  const ValueId small = b.value(5);
  b.op({.name = "f", .time_ns = 1, .inputs = {w, x}, .outputs = {y}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {y}, .outputs = {seed}});
  b.op({.name = "big", .phase = Phase::kBackward, .time_ns = 1, .inputs = {y, seed}, .outputs = {big}});
  b.op({.name = "between", .phase = Phase::kBackward, .time_ns = 1, .inputs = {w, seed}, .outputs = {between}});
  b.op({.name = "small", .phase = Phase::kBackward, .time_ns = 1, .inputs = {x, between}, .outputs = {small}});
  if (hand_over) b.op({.name = "hand over", .phase = Phase::kBackward, .once = true, .inputs = {big, small}});
  b.output(big);
  b.output(small);
  return b.build();
}

TEST(DeferringOrderTest, LargeGradientsOfSmallInputsWait) {
  const auto [step, costs] = two_weights_step();
  const StepModel model(step, costs);
  EXPECT_EQ(model.captured_order, (std::vector{OpId{2}, OpId{3}, OpId{4}}));
  EXPECT_EQ(deferring_order(model, 0), (std::vector{OpId{3}, OpId{4}, OpId{2}}));
  EXPECT_EQ(deferring_order(model, 1'000), model.captured_order);
}

TEST(DeferringOrderTest, TheyWaitForTheLastOpThoughItReadsThem) {
  const auto [step, costs] = two_weights_step(/*hand_over=*/true);
  EXPECT_EQ(deferring_order(StepModel(step, costs), 0), (std::vector{OpId{3}, OpId{4}, OpId{2}, OpId{5}}));
}

TEST(OrderSearchTest, TakesBytesOffTheHighestTurn) {
  const auto [step, costs] = two_weights_step();
  const StepModel model(step, costs);
  Evaluator evaluator(model);
  Pool pool;
  Choice choice = plain_choice(model);
  const Cost before = evaluator.evaluate(choice);
  EXPECT_TRUE(OrderSearch(model, evaluator, pool, [] { return false; }).improve(choice, 0));
  const Cost after = evaluator.evaluate(choice);
  EXPECT_EQ(before.peak_bytes, 1 + 100 + 10 + 10 + 400);  // `big` is made while x is live.
  EXPECT_EQ(after.peak_bytes, 1 + 10 + 10 + 5 + 400);     // `big` is made after x was freed.
  EXPECT_EQ(after.time_ns, before.time_ns);
}

TEST(OrderSearchTest, IsSaidOfThePlan) {
  const auto [step, costs] = two_weights_step();
  const Solution found = solve(step, costs, {.planner = "auto"});
  EXPECT_TRUE(found.reordered);
  EXPECT_EQ(found.simulation.peak_bytes, 426);
  const Solution captured =
      solve(step, costs, {.planner = "auto", .knobs = knobs({.techniques = {.reordering = false}})});
  EXPECT_FALSE(captured.reordered);
  EXPECT_EQ(captured.simulation.peak_bytes, 521);
}

}  // namespace
}  // namespace reprise::test
