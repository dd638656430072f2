#include "solve/auto/local_search.h"

#include <gtest/gtest.h>

#include "reprise/graph_builder.h"
#include "solve/auto/price_search.h"

namespace reprise::test {
namespace {

using detail::Choice;
using detail::Evaluator;
using detail::Label;
using detail::LocalSearch;
using detail::Pool;
using detail::PriceSearch;
using detail::StepModel;

// a (time 5, 10 bytes) and b (time 8, 11 bytes) are made from x, and each is read by one backward op.
CostedGraph two_values_step() {
  GraphBuilder g("two values");
  const ValueId x = g.resident(1);
  const ValueId a = g.value(10);
  const ValueId b = g.value(11);
  const ValueId seed = g.value(1);
  const ValueId c = g.value(1);
  const ValueId d = g.value(1);
  g.op({.name = "a", .time_ns = 5, .inputs = {x}, .outputs = {a}});
  g.op({.name = "b", .time_ns = 8, .inputs = {x}, .outputs = {b}});
  g.op({.name = "caller", .phase = Phase::kCaller, .workspace_bytes = 20, .outputs = {seed}});
  g.op({.name = "c", .phase = Phase::kBackward, .time_ns = 1, .inputs = {a, seed}, .outputs = {c}});
  g.op({.name = "d", .phase = Phase::kBackward, .time_ns = 1, .inputs = {b, c}, .outputs = {d}});
  g.output(d);
  return g.build();
}
constexpr std::int64_t kBudget = 1 + 1 + 20 + 12;  // room for x, the caller's op, and 12 bytes more
constexpr std::int64_t kPlainTime = 15;

class LocalSearchTest : public ::testing::Test {
 protected:
  CostedGraph step_ = two_values_step();
  StepModel model_{step_.graph, step_.costs};
  Evaluator evaluator_{model_};
  Pool pool_;
  LocalSearch search_{model_, evaluator_, pool_, [] { return false; }, {.reorder = false}};
  Choice choice_ = plain_choice(model_);
};

TEST_F(LocalSearchTest, RepairDropsUntilItFits) {
  EXPECT_TRUE(search_.repair(choice_, kBudget));
  EXPECT_LE(evaluator_.evaluate(choice_).peak_bytes, kBudget);
  EXPECT_FALSE(search_.repair(choice_, 10));  // The caller's op alone needs more.
}

TEST_F(LocalSearchTest, FillKeepsTheDearerFirst) {
  choice_.labels[ValueId{1}] = choice_.labels[ValueId{2}] = Label::kHold;
  EXPECT_EQ(search_.fill(choice_, kBudget), kPlainTime + 5);
  EXPECT_EQ(choice_.labels[ValueId{2}], Label::kKeep);
}

TEST_F(LocalSearchTest, SwapMakesRoomForTheDearer) {
  choice_.labels[ValueId{2}] = Label::kHold;
  EXPECT_EQ(search_.fill(choice_, kBudget), kPlainTime + 8);
  EXPECT_EQ(search_.swap(choice_, kPlainTime + 8, kBudget), kPlainTime + 5);
}

TEST_F(LocalSearchTest, ImproveFindsTheBestFromWhatThePoolHas) {
  pool_.offer(evaluator_.evaluate(choice_), choice_);
  search_.improve(kBudget);
  EXPECT_EQ(pool_.fastest(kBudget)->second.time_ns, kPlainTime + 5);
}

TEST_F(LocalSearchTest, AimedPricesReachTheBudget) {
  PriceSearch prices(model_, evaluator_, pool_, model_.captured_order, [] { return false; });
  prices.aim(kBudget, {}, 20);
  ASSERT_NE(pool_.fastest(kBudget), pool_.entries().end());
  EXPECT_EQ(pool_.fastest(kBudget)->second.time_ns, kPlainTime + 5);
}

TEST_F(LocalSearchTest, NothingIsDoneWithoutWork) {
  LocalSearch idle(model_, evaluator_, pool_, [] { return true; }, {.reorder = true});
  pool_.offer(evaluator_.evaluate(choice_), choice_);
  idle.improve(kBudget);
  idle.kick(kBudget, 10);
  EXPECT_EQ(pool_.entries().size(), 1U);
}

}  // namespace
}  // namespace reprise::test
