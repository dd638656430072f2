#include "solve/chain/chen_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/solve/chain/vectors.h"

namespace reprise::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ChenChainTest, UniformSegmentsHaveAboutRootLength) {
  EXPECT_THAT(chen_uniform(24), ElementsAre(5, 10, 15, 20));
  EXPECT_THAT(chen_uniform(9), ElementsAre(3, 6));
  EXPECT_THAT(chen_uniform(2), ElementsAre(1));
  EXPECT_THAT(chen_uniform(1), IsEmpty());
  EXPECT_THAT(chen_uniform(0), IsEmpty());
}

TEST(ChenChainTest, TheWalkCutsWhereTheSumExceedsTheBudget) {
  const std::vector<std::int64_t> sizes = {9, 2, 3, 1, 4, 6, 2};
  const BalancedPlan plan = chen_balanced(sizes, 4);
  EXPECT_THAT(plan.checkpoints, ElementsAre(2, 4, 5));
  EXPECT_EQ(plan.stored_bytes, 3 + 4 + 6);
  EXPECT_EQ(plan.largest_bytes, 6);
  EXPECT_THAT(chen_balanced(sizes, 100).checkpoints, IsEmpty());
}

TEST(ChenChainTest, TheFirstWalkStoresEverything) {
  const BalancedPlan plan = chen_balanced(vgg19_sizes(), 0);
  EXPECT_NEAR(static_cast<double>(plan.stored_bytes) / 2048, 8003.7, 0.1);
  EXPECT_EQ(plan.largest_bytes, 1568 * 2048);
}

TEST(ChenChainTest, TheSearchFindsTheKnownPlanOfVgg19) {
  const ChainAnswer answer = chen_search(vgg19_sizes());
  EXPECT_THAT(answer.checkpoints, ElementsAre(3, 10));
  EXPECT_EQ(answer.peak_bytes, 5096 * 2048);
}

TEST(ChenChainTest, TheJudgeDecides) {
  const ChainAnswer answer =
      chen_search(vgg19_sizes(), [](const Checkpoints& c) { return -static_cast<std::int64_t>(c.size()); });
  EXPECT_EQ(answer.checkpoints.size(), 23);
}

TEST(ChenChainTest, RecursionHalves) {
  using enum ChainAction::Kind;
  const std::vector<ChainAction> actions = chen_recursive(3);
  EXPECT_THAT(
      actions,
      ElementsAre(ChainAction{kForwardKeepInput, 1}, ChainAction{kForwardDrop, 2}, ChainAction{kForwardSaveAll, 3},
                  ChainAction{kBackward, 3}, ChainAction{kForwardKeepInput, 1}, ChainAction{kForwardSaveAll, 2},
                  ChainAction{kBackward, 2}, ChainAction{kForwardSaveAll, 1}, ChainAction{kBackward, 1}));
  EXPECT_THAT(chen_recursive(0), IsEmpty());
}

}  // namespace
}  // namespace reprise::detail
