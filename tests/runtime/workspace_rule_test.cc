// Workspaces that follow from those at other sizes, and those that do not.
#include "runtime/costs/workspace_rule.h"

#include <gtest/gtest.h>

#include <vector>

namespace reprise {
namespace {

using Bytes = std::vector<std::int64_t>;

// The bytes of a call that reads `input` and weights of 640 bytes, and makes `output`.
Bytes call(std::int64_t input, std::int64_t output) { return {input, 640, output}; }

TEST(WorkspaceRule, KnowsNothingFromOneSize) {
  WorkspaceRule rule;
  rule.learn(call(1000, 2000), 0);
  rule.learn(call(1000, 2000), 0);
  EXPECT_EQ(rule.at(call(1100, 2200)), std::nullopt);
}

TEST(WorkspaceRule, FindsConstants) {
  WorkspaceRule rule;
  rule.learn(call(1000, 2000), 64);
  rule.learn(call(1200, 2400), 64);
  EXPECT_EQ(rule.at(call(1100, 2200)), 64);
}

TEST(WorkspaceRule, FindsCopiesOfOperandsAndWhatIsBeside) {
  WorkspaceRule of_input, of_both;
  for (const std::int64_t n : {1000, 1300}) {
    of_input.learn(call(n, 3 * n - 500), n + 640);
    of_both.learn(call(n, 3 * n - 500), 2 * (n + 3 * n - 500));
  }
  EXPECT_EQ(of_input.at(call(1700, 4500)), 1700 + 640);
  EXPECT_EQ(of_both.at(call(1700, 4600)), 2 * (1700 + 4600));
}

TEST(WorkspaceRule, DoesNotGuessWhereTwoRulesDisagree) {
  WorkspaceRule rule;
  rule.learn(call(1000, 1000), 1000);
  rule.learn(call(1200, 1200), 1200);
  EXPECT_EQ(rule.at(call(1100, 1100)), 1100);
  EXPECT_EQ(rule.at(call(1100, 1300)), std::nullopt);
}

TEST(WorkspaceRule, IsGivenUpWhereItDoesNotHold) {
  WorkspaceRule rule;
  rule.learn(call(1000, 2000), 1000);
  rule.learn(call(1200, 2400), 1200);
  ASSERT_EQ(rule.at(call(1100, 2200)), 1100);
  rule.learn(call(1400, 2800), 1400 + 64);
  EXPECT_EQ(rule.at(call(1100, 2200)), std::nullopt);
}

TEST(WorkspaceRule, HoldsNearTheKnownSizesAlone) {
  WorkspaceRule rule;
  rule.learn(call(1000, 2000), 0);
  rule.learn(call(1200, 2400), 0);
  EXPECT_EQ(rule.at(call(2000, 4000)), 0);
  EXPECT_EQ(rule.at(call(3000, 6000)), std::nullopt);
  EXPECT_EQ(rule.at(call(300, 600)), std::nullopt);
}

TEST(WorkspaceRule, RemembersFewSizesWithoutARule) {
  constexpr std::int64_t kSizes = 1000;
  WorkspaceRule rule;
  for (std::int64_t i = 0; i < kSizes; ++i) rule.learn(call(1000 + i, 2000 + 2 * i), i * i);
  EXPECT_LE(rule.known_sizes(), 16);
  EXPECT_EQ(rule.at(call(1100, 2200)), std::nullopt);
}

}  // namespace
}  // namespace reprise
