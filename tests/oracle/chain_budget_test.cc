// Compares the least recomputation within a budget with that of all subsets of checkpoints.
#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/chain_reference.h"
#include "solve/chain/budget_chain.h"
#include "solve/chain/dynamic_chain.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr int kBudgetRounds = kSmallTests ? 50 : 1500;
constexpr std::int64_t kNever = std::int64_t{1} << 60;

struct Instance {
  Sizes d;
  Sizes times;
  std::int64_t base;
  std::int64_t budget;
};

Instance random_instance(Random& random, int round, int most_layers) {
  const auto n = static_cast<std::uint32_t>(random.between(1, most_layers));
  Instance instance{.d = random_sizes(random, round % kChainKinds, n), .times = Sizes(n), .base = 0, .budget = 0};
  for (std::int64_t& time : instance.times) time = random.between(0, 5);
  instance.base = random.between(1, 2) * instance.d.back();
  instance.budget = detail::least_peak(instance.d, instance.base).peak_bytes * random.between(98, 150) / 100;
  return instance;
}

std::int64_t time_of(const Instance& instance, const Checkpoints& c) {
  if (dynamic_cost(instance.d, c, instance.base) > instance.budget) return kNever;
  std::int64_t time = 0;
  for (std::uint32_t k = 1; k < instance.times.size(); ++k) {
    if (!std::ranges::binary_search(c, k)) time += instance.times[k - 1];
  }
  return time;
}

TEST(ChainBudgetTest, MatchesAllSubsets) {
  Random random(1);
  for (int round = 0; round < kBudgetRounds; ++round) {
    const Instance i = random_instance(random, round, 9);
    const auto answer = detail::least_recomputation(i.d, i.times, i.base, i.budget);
    const std::int64_t least = least_over_subsets(1, static_cast<std::uint32_t>(i.times.size()) - 1,
                                                  [&](const Checkpoints& c) { return time_of(i, c); });
    ASSERT_EQ(answer.has_value(), least < kNever);
    if (!answer) continue;
    ASSERT_EQ(answer->recompute_time, least);
    ASSERT_EQ(answer->recompute_time, time_of(i, answer->checkpoints));
    ASSERT_EQ(answer->peak_bytes, dynamic_cost(i.d, answer->checkpoints, i.base));
    ASSERT_FALSE(answer->rounded);
  }
}

TEST(ChainBudgetTest, SlotsKeepTheBudgetAndAreNeverBetter) {
  Random random(2);
  int rounded = 0;
  for (int round = 0; round < kBudgetRounds; ++round) {
    const Instance i = random_instance(random, round, 30);
    const auto exact = detail::least_recomputation(i.d, i.times, i.base, i.budget);
    const auto answer = detail::least_recomputation(i.d, i.times, i.base, i.budget, {.most_partials = 20, .units = 50});
    ASSERT_EQ(answer.has_value(), exact.has_value());
    if (!answer) continue;
    ASSERT_LE(answer->peak_bytes, i.budget);
    ASSERT_GE(answer->recompute_time, exact->recompute_time);
    ASSERT_EQ(answer->recompute_time, time_of(i, answer->checkpoints));
    rounded += answer->rounded ? 1 : 0;
  }
  EXPECT_GT(rounded, kBudgetRounds / 4);
}

}  // namespace
}  // namespace reprise::test
