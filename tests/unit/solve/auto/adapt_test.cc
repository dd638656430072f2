#include "solve/auto/adapt.h"

#include <gtest/gtest.h>

#include <array>

#include "fixtures/steps.h"
#include "reprise/reprise.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

using detail::adapt;

constexpr std::size_t kEnough = 1'000'000;

class AdaptTest : public ::testing::Test {
 protected:
  CostedGraph step_ = three_layers_step();  // 310 bytes and 60 ns; at least 210 bytes, with a computed again
  std::array<Plan, 1> plain_{solve(step_, {.planner = "none"}).plan};
};

TEST_F(AdaptTest, DropsWhatDoesNotFit) {
  const auto plan = adapt(step_.graph, step_.costs, plain_, 309, kEnough);
  ASSERT_TRUE(plan);
  ASSERT_FALSE(validate(step_.graph, *plan));
  EXPECT_LE(simulate(step_, *plan).peak_bytes, 309);
  EXPECT_EQ(simulate(step_, *plan).time_ns, 70);
}

TEST_F(AdaptTest, KeepsWhatFits) {
  const std::array least{solve(step_, {}).plan};
  EXPECT_GT(simulate(step_, least[0]).recompute_ns, 0);
  const auto plan = adapt(step_.graph, step_.costs, least, 310, kEnough);
  ASSERT_TRUE(plan);
  EXPECT_EQ(simulate(step_, *plan).recompute_ns, 0);
}

TEST_F(AdaptTest, FindsNothingBelowWhatEveryPlanNeeds) {
  EXPECT_FALSE(adapt(step_.graph, step_.costs, plain_, 209, kEnough));
  EXPECT_FALSE(adapt(step_.graph, step_.costs, plain_, 0, kEnough));
}

TEST_F(AdaptTest, DoesLittleWithoutWork) { EXPECT_FALSE(adapt(step_.graph, step_.costs, plain_, 309, 0)); }

TEST_F(AdaptTest, FindsNothingFromNothing) { EXPECT_FALSE(adapt(step_.graph, step_.costs, {}, 310, kEnough)); }

}  // namespace
}  // namespace reprise::test
