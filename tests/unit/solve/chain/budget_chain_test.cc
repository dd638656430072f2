#include "solve/chain/budget_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "solve/chain/dynamic_chain.h"
#include "unit/solve/chain/vectors.h"

namespace reprise::detail {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(BudgetChainTest, AFifthOfTheRecomputationAtTheLeastPeakOfVgg19) {
  const Sizes sizes = vgg19_sizes();
  const Sizes times(24, 1);
  const auto answer = least_recomputation(sizes, times, sizes.back(), 4704 * 2048);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->recompute_time, 4);
  EXPECT_EQ(answer->checkpoints.size(), 19);
  EXPECT_EQ(answer->peak_bytes, 4704 * 2048);
  EXPECT_FALSE(answer->rounded);
}

TEST(BudgetChainTest, MoreMemoryNeverTakesMoreTime) {
  const Sizes sizes = vgg19_sizes();
  const Sizes times(24, 3);
  std::int64_t last = 1000;
  for (std::int64_t mib = 4704; mib < 12000; mib += 500) {
    const auto answer = least_recomputation(sizes, times, sizes.back(), mib * 2048);
    ASSERT_TRUE(answer.has_value());
    EXPECT_LE(answer->recompute_time, last);
    last = answer->recompute_time;
  }
  EXPECT_EQ(last, 0);
}

TEST(BudgetChainTest, DropsOneOfTwoWhereOneFits) {
  const Sizes sizes = {1, 1, 1, 1};
  const Sizes times = {5, 2, 7};
  EXPECT_EQ(least_recomputation(sizes, times, 1, 5)->recompute_time, 0);
  EXPECT_EQ(least_recomputation(sizes, times, 1, 4)->recompute_time, 5)
      << "the second alone would leave a segment of 2 + 3";
  EXPECT_FALSE(least_recomputation(sizes, times, 1, 3).has_value());
}

TEST(BudgetChainTest, HandlesTheShortestChains) {
  EXPECT_EQ(least_recomputation(Sizes{4}, Sizes{}, 9, 9)->peak_bytes, 9);
  EXPECT_FALSE(least_recomputation(Sizes{4}, Sizes{}, 9, 8).has_value());
  EXPECT_EQ(least_recomputation(Sizes{3, 5}, Sizes{1}, 5, 11)->recompute_time, 0);
}

TEST(BudgetChainTest, SaysWhenItRounds) {
  const Sizes sizes = vgg19_sizes();
  const auto answer = least_recomputation(sizes, Sizes(24, 1), sizes.back(), 6000 * 2048, {.most_partials = 50});
  ASSERT_TRUE(answer.has_value());
  EXPECT_TRUE(answer->rounded);
  EXPECT_LE(answer->peak_bytes, 6000 * 2048);
}

}  // namespace
}  // namespace reprise::detail
