#include "solve/lower_sets/formula.h"

#include <gtest/gtest.h>

#include <vector>

#include "unit/papers/small_view.h"

namespace reprise::detail {
namespace {

// a -> b -> c, with the times 1 2 3 and the sizes 1 2 4.
ForwardView three_nodes() { return test::view_of({{}, {0}, {1}}, {1, 2, 3}, {1, 2, 4}); }

TEST(FormulaTest, OneBlockHoldsAllTwice) {
  EXPECT_EQ(formula(three_nodes(), {.block = {0, 0, 0}, .count = 1}, false),
            (Formula{.overhead = 6, .peak_bytes = 14, .cached_bytes = 0, .blocks = 1}));
  EXPECT_EQ(formula(three_nodes(), {.block = {0, 0, 0}, .count = 1}, true),
            (Formula{.overhead = 0, .peak_bytes = 14, .cached_bytes = 0, .blocks = 1}));
}

// Pass 1 takes 2 (1 + 2) and the gradient of c, 4, which makes 10. Pass 2 takes the cached b, 2, and 2 * 4, which
// makes 10.
TEST(FormulaTest, ACutCachesItsBoundary) {
  EXPECT_EQ(formula(three_nodes(), {.block = {0, 0, 1}, .count = 2}, false),
            (Formula{.overhead = 1 + 3, .peak_bytes = 10, .cached_bytes = 2, .blocks = 2}));
  EXPECT_EQ(formula(three_nodes(), {.block = {0, 0, 1}, .count = 2}, true),
            (Formula{.overhead = 1, .peak_bytes = 10, .cached_bytes = 2, .blocks = 2}));
}

// a feeds b and d, and c feeds d. The gradient of a needs the gradient of d, and also c.
TEST(FormulaTest, GradientsAfterABlockReadWhatLiesBeside) {
  const ForwardView view = test::view_of({{}, {0}, {}, {0, 2}}, {1, 1, 1, 1}, {1, 10, 100, 1000});
  // {a} {b, c, d}: pass 1 is 2 * 1 + (10 + 1000) + 100, pass 2 is 1 + 2 * 1110.
  EXPECT_EQ(formula(view, {.block = {0, 1, 1, 1}, .count = 2}, false),
            (Formula{.overhead = 3, .peak_bytes = 2221, .cached_bytes = 1, .blocks = 2}));
  // {a} {b} {c, d}: pass 2 is 1 + 2 * 10 + 1000 + 100; pass 3 is 1 + 2 * 1100.
  EXPECT_EQ(formula(view, {.block = {0, 1, 2, 2}, .count = 3}, false),
            (Formula{.overhead = 3, .peak_bytes = 2201, .cached_bytes = 1, .blocks = 3}));
}

TEST(FormulaTest, NothingCostsNothing) {
  EXPECT_EQ(formula(test::view_of({}, {}, {}), {.block = {}, .count = 0}, false), Formula{});
}

}  // namespace
}  // namespace reprise::detail
