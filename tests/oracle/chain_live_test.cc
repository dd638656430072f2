// Compares the formula for live memory with a machine that allocates and frees, and its planner with all subsets of
// checkpoints.
#include <gtest/gtest.h>

#include "oracle/chain_reference.h"
#include "solve/chain/dynamic_chain.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr int kLiveRounds = kSmallTests ? 30 : 600;

std::int64_t formula(const LiveInstance& chain, const Checkpoints& c) {
  return detail::live_peak(chain.layers, chain.input_bytes, chain.input_gradient, c);
}

class ChainLiveTest : public testing::TestWithParam<bool> {};

TEST_P(ChainLiveTest, TheFormulaIsThePeakOfTheRun) {
  Random random(1);
  for (int round = 0; round < kLiveRounds; ++round) {
    const auto n = static_cast<std::uint32_t>(random.between(1, 8));
    const LiveInstance chain = random_live(random, n, GetParam());
    (void)least_over_subsets(1, n - 1, [&](const Checkpoints& c) {
      EXPECT_EQ(formula(chain, c), run_live(chain, c));
      return 0;
    });
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(ChainLiveTest, ThePlannerMatchesAllSubsets) {
  Random random(2);
  for (int round = 0; round < kLiveRounds; ++round) {
    const auto n = static_cast<std::uint32_t>(random.between(1, round % 20 == 0 ? 12 : 9));
    const LiveInstance chain = random_live(random, n, GetParam());
    const detail::ChainAnswer answer = detail::least_live_peak(chain.layers, chain.input_bytes, chain.input_gradient);
    ASSERT_EQ(answer.peak_bytes, least_over_subsets(1, n - 1, [&](const Checkpoints& c) { return formula(chain, c); }));
    ASSERT_EQ(answer.peak_bytes, run_live(chain, answer.checkpoints));
  }
}

INSTANTIATE_TEST_SUITE_P(LinearAndQuadratic, ChainLiveTest, testing::Bool());

// A forward workspace of one byte on the last layer does not change the optimum, but it makes the planner use its
// quadratic algorithm instead of the linear one.
TEST(ChainLiveModelTest, BothWaysAgreeOnLongChains) {
  Random random(3);
  for (int round = 0; round < kLiveRounds / 10; ++round) {
    LiveInstance chain = random_live(random, 300, true);
    chain.layers.push_back({.bytes = 50, .gradient_bytes = 50});
    const std::int64_t linear =
        detail::least_live_peak(chain.layers, chain.input_bytes, chain.input_gradient).peak_bytes;
    chain.layers.back().forward_workspace_bytes = 1;
    ASSERT_EQ(detail::least_live_peak(chain.layers, chain.input_bytes, chain.input_gradient).peak_bytes, linear);
  }
}

TEST(ChainLiveModelTest, IsNeverAboveTheModelWithOneLargeGradient) {
  Random random(4);
  for (int round = 0; round < kLiveRounds; ++round) {
    const auto n = static_cast<std::uint32_t>(random.between(1, 30));
    const Sizes d = random_sizes(random, round % kChainKinds, n);
    LiveInstance chain{.input_bytes = d[0], .input_gradient = true};
    for (std::size_t k = 1; k < d.size(); ++k) chain.layers.push_back({.bytes = d[k], .gradient_bytes = d[k]});
    ASSERT_LE(detail::least_live_peak(chain.layers, d[0], true).peak_bytes,
              detail::least_peak(d, 2 * d.back()).peak_bytes);
    const Checkpoints c = detail::least_peak(d, 2 * d.back()).checkpoints;
    ASSERT_LE(run_live(chain, c), dynamic_cost(d, c, 2 * d.back()));
  }
}

}  // namespace
}  // namespace reprise::test
