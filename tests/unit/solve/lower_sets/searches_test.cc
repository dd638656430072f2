// Tests the searches over sequences of lower sets on small examples and at their limits. tests/oracle tests them on all
// small graphs.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "solve/lower_sets/cache_search.h"
#include "solve/lower_sets/formula.h"
#include "solve/lower_sets/overhead_search.h"
#include "unit/papers/small_view.h"

namespace reprise::detail {
namespace {

// A view, all its lower sets, and the transitions between them.
struct Problems {
  explicit Problems(ForwardView v, bool keep_last = false)
      : view(std::move(v)), family(*all_lower_sets(view, 100'000)), transitions(view, family, keep_last) {}
  ForwardView view;
  LowerSetFamily family;
  Transitions transitions;

  [[nodiscard]] Formula formula_of(const SetSequence& sequence) const {
    return formula(view, family.blocks(sequence), transitions.keep_last());
  }
};

ForwardView chain() { return test::view_of({{}, {0}, {1}}, {1, 2, 3}, {1, 2, 4}); }

TEST(TransitionsTest, AStepCostsWhatTheHeaderSays) {
  const Problems p(chain());  // The sets are 0 {}, 1 {a}, 2 {a,b}, 3 V.
  EXPECT_EQ(p.transitions.pass_bytes(0, 2), 2 * 3 + 4);
  EXPECT_EQ(p.transitions.single(0, 2).cached_bytes, 2);
  EXPECT_EQ(p.transitions.single(0, 2).cached_time, 2);
  EXPECT_EQ(p.transitions.overhead(0, 2, 2), 1);
  EXPECT_EQ(p.transitions.overhead(2, 3, 0), 3);
  EXPECT_EQ(Transitions(p.view, p.family, true).overhead(2, 3, 0), 0) << "the last block is kept";
}

TEST(TransitionsTest, PartsVisitEveryProperSubsetOnce) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Problems p(test::random_view(seed, 9, 25));
    const std::vector<std::uint64_t> all((p.family.size() + 63) / 64, ~std::uint64_t{0});
    for (SetId to = 1; to < p.family.size(); ++to) {
      std::vector<int> visits(p.family.size(), 0);
      p.transitions.for_each_part(
          to, all, [](std::size_t) { return false; },
          [&](const Part& part) {
            part.for_each([&](SetId from) {
              ++visits[from];
              const Part single = p.transitions.single(from, to);
              ASSERT_EQ(part.cached_bytes, single.cached_bytes);
              ASSERT_EQ(part.cached_time, single.cached_time);
            });
          });
      for (SetId from = 0; from < p.family.size(); ++from) {
        ASSERT_EQ(visits[from], from < to && p.family.subset(from, to) ? 1 : 0) << "seed " << seed;
      }
    }
  }
}

TEST(CacheSearchTest, FindsTheSequenceOfItsExample) {
  const Problems p(chain());
  EXPECT_EQ(least_cache_sequence(p.transitions, 10), (SetSequence{2, 3}));
  EXPECT_EQ(least_cache_sequence(p.transitions, 14), (SetSequence{3})) << "one block caches nothing";
  EXPECT_EQ(least_cache_sequence(p.transitions, 9), std::nullopt);
  EXPECT_EQ(smallest_formula_budget(p.transitions, std::nullopt, {}), 10);
  EXPECT_EQ(smallest_formula_budget(p.transitions, 14, {}), 10) << "from a known one down";
  EXPECT_EQ(smallest_formula_budget(p.transitions, 10, {}), 10);
  EXPECT_EQ(least_cached_bytes(p.transitions, 10), (std::vector<std::int64_t>{0, 1, 2, 2}));
  EXPECT_EQ(least_cached_bytes(p.transitions, 0),
            (std::vector<std::int64_t>{0, kUnreachable, kUnreachable, kUnreachable}));
}

TEST(CacheSearchTest, SmallestBudgetIsTheSmallestThatIsFeasible) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Problems p(test::random_view(seed, 8, 30));
    const auto smallest = smallest_formula_budget(p.transitions, std::nullopt, {});
    ASSERT_TRUE(smallest) << "seed " << seed;
    std::int64_t expected = 0;
    while (!least_cache_sequence(p.transitions, expected)) ++expected;
    EXPECT_EQ(*smallest, expected) << "seed " << seed;
  }
}

TEST(CacheSearchTest, StopsWhenAsked) {
  const Problems p(chain());
  EXPECT_EQ(smallest_formula_budget(p.transitions, std::nullopt, [] { return true; }), std::nullopt);
}

TEST(OverheadSearchTest, TradesOverheadForBytes) {
  const Problems p(chain());
  const auto best = [&](std::int64_t budget, bool most) {
    const OverheadResult result =
        extreme_overhead_sequence(p.transitions, {.budget_bytes = budget, .most = most, .max_partials = 100});
    EXPECT_FALSE(result.stopped);
    return result.sequence;
  };
  EXPECT_EQ(best(9, false), std::nullopt);
  EXPECT_EQ(best(10, false), (SetSequence{2, 3}));
  // The sequence {a} {a,b} V caches a and b, so only c is computed again. Its block passes are 4, 9 and 11.
  EXPECT_EQ(best(11, false), (SetSequence{1, 2, 3}));
  EXPECT_EQ(best(14, true), (SetSequence{3})) << "one block computes all again";
}

TEST(OverheadSearchTest, BothSearchesAgree) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Problems p(test::random_view(seed, 8, 30), /*keep_last=*/seed % 2 == 0);
    const std::int64_t smallest = *smallest_formula_budget(p.transitions, std::nullopt, {});
    for (const std::int64_t budget : {smallest - 1, smallest, smallest + 3, 2 * p.view.total_bytes()}) {
      for (const bool most : {false, true}) {
        const OverheadOptions options{.budget_bytes = budget, .most = most, .max_partials = 100'000};
        const OverheadResult table = table_search(p.transitions, options);
        const OverheadResult partials = partial_search(p.transitions, options);
        ASSERT_EQ(table.sequence.has_value(), budget >= smallest) << "seed " << seed;
        ASSERT_EQ(partials.sequence.has_value(), budget >= smallest) << "seed " << seed;
        if (budget < smallest) continue;
        const Formula by_table = p.formula_of(*table.sequence);
        const Formula by_partials = p.formula_of(*partials.sequence);
        ASSERT_EQ(by_table.overhead, by_partials.overhead) << "seed " << seed << ", budget " << budget;
        ASSERT_LE(by_table.peak_bytes, budget);
        ASSERT_LE(by_partials.peak_bytes, budget);
      }
    }
  }
}

TEST(OverheadSearchTest, LimitsOfWorkAreKept) {
  const Problems p(test::random_view(1, 9, 20, /*costs=*/1'000'000'007));
  const std::int64_t budget = 2 * p.view.total_bytes();
  const OverheadResult limited = partial_search(p.transitions, {.budget_bytes = budget, .max_partials = 2});
  EXPECT_TRUE(limited.too_many_partials);
  EXPECT_FALSE(limited.sequence);
  const OverheadResult rounded = extreme_overhead_sequence(p.transitions, {.budget_bytes = budget, .max_partials = 2});
  const OverheadResult exact =
      extreme_overhead_sequence(p.transitions, {.budget_bytes = budget, .max_partials = 100'000});
  ASSERT_TRUE(rounded.sequence && exact.sequence);
  EXPECT_EQ(exact.overhead_error, 0);
  EXPECT_LE(p.formula_of(*rounded.sequence).overhead - p.formula_of(*exact.sequence).overhead, rounded.overhead_error);
  const OverheadResult stopped = extreme_overhead_sequence(
      p.transitions, {.budget_bytes = budget, .max_partials = 100'000, .should_stop = [] { return true; }});
  EXPECT_TRUE(stopped.stopped);
  EXPECT_FALSE(stopped.sequence);
}

TEST(SearchesTest, AnEmptyGraphHasTheEmptySequence) {
  const Problems p(test::view_of({}, {}, {}));
  EXPECT_EQ(smallest_formula_budget(p.transitions, std::nullopt, {}), 0);
  EXPECT_EQ(least_cache_sequence(p.transitions, 0), SetSequence{});
  const OverheadOptions options{.budget_bytes = 0, .max_partials = 10};
  EXPECT_EQ(table_search(p.transitions, options).sequence, SetSequence{});
  EXPECT_EQ(partial_search(p.transitions, options).sequence, SetSequence{});
}

}  // namespace
}  // namespace reprise::detail
