// Compares the planners' searches with brute force on every graph of up to six topologically ordered nodes, with
// several patterns of costs. There are 33,867 graphs; slow builds use the 1,099 of up to five nodes.
//
// Graphs of up to five nodes are tried with every pattern and both families, with and without keeping the last block,
// and at every budget that equals a block pass of a sequence or differs from one by a byte. Graphs of six nodes get one
// of the patterns in turn, every other one keeps the last block, and eight budgets are spread over the peaks of their
// sequences.
#include <gtest/gtest.h>

#include <algorithm>

#include "oracle/core.h"
#include "oracle/replay.h"
#include "reprise/solve.h"
#include "solve/lower_sets/cache_search.h"
#include "solve/lower_sets/overhead_search.h"
#include "support/costed.h"
#include "support/shrink.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

struct Pattern {
  const char* name;
  std::int64_t time[6];
  std::int64_t bytes[6];
};
constexpr Pattern kPatterns[] = {
    {"ones", {1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1}},
    {"primes", {2, 3, 5, 7, 11, 13}, {17, 13, 11, 7, 5, 3}},
    {"zeros", {0, 1, 0, 2, 1, 0}, {1, 0, 2, 0, 3, 0}},
    {"powers of two", {32, 16, 1, 2, 8, 4}, {1, 8, 2, 32, 4, 16}},
    // These times are too long for a table, so the search uses partials.
    {"nanoseconds", {1'234'567, 87'654'321, 4'001, 33'333'333, 52'123, 9'876'543}, {4096, 65536, 512, 8192, 1024, 4}},
};

Dag with_costs(Dag dag, const Pattern& pattern) {
  for (int v = 0; v < dag.size(); ++v) {
    dag.time[v] = pattern.time[v];
    dag.bytes[v] = pattern.bytes[v];
  }
  return dag;
}

// Compares the core with brute force on one family of lower sets of one graph.
class Duel {
 public:
  Duel(const Dag& dag, Family family, bool keep_last)
      : dag_(dag),
        keep_last_(keep_last),
        outcomes_(dag, family),
        view_(detail::forward_view(to_graph(dag))),
        family_(family == Family::kAllLowerSets ? *detail::all_lower_sets(view_, 1000) : detail::ancestor_sets(view_)),
        transitions_(view_, family_, keep_last) {}

  [[nodiscard]] const Outcomes& outcomes() const { return outcomes_; }

  // This and the next two functions return what differs, or "".
  [[nodiscard]] std::string families() const {
    std::vector<Mask> masks;
    for (detail::SetId set = 0; set < family_.size(); ++set) masks.push_back(to_mask(family_, set, dag_.size()));
    std::ranges::sort(masks);
    return masks == outcomes_.family() ? "" : "the families differ";
  }

  [[nodiscard]] std::string smallest_budget() const {
    const auto smallest = detail::smallest_formula_budget(transitions_, std::nullopt, {});
    if (smallest != outcomes_.smallest_budget()) return "the smallest budgets differ";
    const std::int64_t whole = 2 * dag_.total_bytes();
    const auto from_known = detail::smallest_formula_budget(transitions_, whole, {});
    return from_known == smallest ? "" : "the smallest budget depends on what is known";
  }

  [[nodiscard]] std::string at(std::int64_t budget) const {
    const auto cache = found(detail::least_cache_sequence(transitions_, budget), budget);
    if (cache.wrong) return "least cache: the sequence does not fit";
    const auto known_cache = outcomes_.least_cache(budget, keep_last_);
    if (cache.outcome.has_value() != known_cache.has_value()) return "least cache: feasible or not";
    if (known_cache && std::pair(cache.outcome->cached, overhead(*cache.outcome)) != *known_cache) {
      return "least cache: not the least";
    }
    const std::string least = extreme(budget, false, outcomes_.least_overhead(budget, keep_last_));
    return least.empty() ? extreme(budget, true, outcomes_.most_overhead(budget, keep_last_)) : least;
  }

 private:
  struct Found {
    std::optional<Outcome> outcome;
    bool wrong = false;  // whether it is not a sequence of lower sets, or is over the budget
  };

  [[nodiscard]] std::int64_t overhead(const Outcome& o) const { return keep_last_ ? o.kept_overhead : o.overhead; }

  [[nodiscard]] Found found(const std::optional<detail::SetSequence>& sequence, std::int64_t budget) const {
    if (!sequence) return {};
    std::vector<Mask> masks;
    for (const detail::SetId set : *sequence) masks.push_back(to_mask(family_, set, dag_.size()));
    for (std::size_t i = 0; i < masks.size(); ++i) {
      const Mask before = i == 0 ? 0 : masks[i - 1];
      if ((before & ~masks[i]) != 0 || before == masks[i]) return {std::nullopt, true};
    }
    const Outcome outcome = outcomes_.outcome(masks);
    return {outcome, outcome.peak > budget || masks.empty() || masks.back() != (1U << dag_.size()) - 1};
  }

  [[nodiscard]] std::string extreme(std::int64_t budget, bool most, std::optional<std::int64_t> known) const {
    const detail::OverheadResult result = detail::extreme_overhead_sequence(
        transitions_, {.budget_bytes = budget, .most = most, .max_partials = 1'000'000});
    const Found mine = found(result.sequence, budget);
    const std::string what = most ? "most overhead: " : "least overhead: ";
    if (mine.wrong) return what + "the sequence does not fit";
    if (mine.outcome.has_value() != known.has_value()) return what + "feasible or not";
    if (result.overhead_error != 0) return what + "an error without rounding";
    return known && overhead(*mine.outcome) != *known ? what + "not the extreme" : "";
  }

  const Dag& dag_;
  bool keep_last_;
  Outcomes outcomes_;
  detail::ForwardView view_;
  detail::LowerSetFamily family_;
  detail::Transitions transitions_;
};

std::vector<std::int64_t> all_budgets(const Outcomes& outcomes) {
  std::vector<std::int64_t> budgets;
  for (const std::int64_t pass : outcomes.pass_values()) {
    for (const std::int64_t near : {pass - 1, pass, pass + 1}) {
      if (near >= 0) budgets.push_back(near);
    }
  }
  std::ranges::sort(budgets);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

std::vector<std::int64_t> some_budgets(const Outcomes& outcomes) {
  const std::vector<std::int64_t> peaks = outcomes.peaks();
  std::vector<std::int64_t> budgets;
  if (peaks.front() > 0) budgets.push_back(peaks.front() - 1);
  const std::size_t stride = std::max<std::size_t>(1, peaks.size() / 7);
  for (std::size_t i = 0; i < peaks.size(); i += stride) budgets.push_back(peaks[i]);
  return budgets;
}

using Budgets = std::vector<std::int64_t> (*)(const Outcomes&);

std::string difference(const Dag& dag, Family family, bool keep_last, Budgets budgets) {
  if (dag.size() == 0) return "";
  const Duel duel(dag, family, keep_last);
  if (std::string wrong = duel.families(); !wrong.empty()) return wrong;
  if (std::string wrong = duel.smallest_budget(); !wrong.empty()) return wrong;
  for (const std::int64_t budget : budgets(duel.outcomes())) {
    if (const std::string wrong = duel.at(budget); !wrong.empty()) {
      return wrong + " at budget " + std::to_string(budget);
    }
  }
  return "";
}

void expect_no_difference(const Dag& dag, Family family, bool keep_last, Budgets budgets) {
  const std::string wrong = difference(dag, family, keep_last, budgets);
  if (wrong.empty()) return;
  const auto fails = [&](const Dag& smaller) { return !difference(smaller, family, keep_last, budgets).empty(); };
  FAIL() << wrong << (keep_last ? ", last block kept\n" : "\n") << shrunk_json(dag, fails);
}

TEST(AllDagsTest, SearchesEqualBruteForceUpToFiveNodes) {
  constexpr int kNodes = kSmallTests ? 4 : 5;
  std::size_t dags = 0;
  for (int nodes = 1; nodes <= kNodes; ++nodes) {
    for (std::uint32_t code = 0; code < num_codes(nodes); ++code, ++dags) {
      for (const Pattern& pattern : kPatterns) {
        const Dag dag = with_costs(dag_from_code(nodes, code), pattern);
        for (const bool keep_last : {false, true}) {
          expect_no_difference(dag, Family::kAllLowerSets, keep_last, all_budgets);
          expect_no_difference(dag, Family::kAncestorSets, keep_last, all_budgets);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_EQ(dags, kSmallTests ? 75U : 1099U);
}

TEST(AllDagsTest, SearchesEqualBruteForceAtSixNodes) {
  if (kSmallTests) GTEST_SKIP() << "up to four nodes in slow builds";
  std::size_t dags = 0;
  for (std::uint32_t code = 0; code < num_codes(6); ++code, ++dags) {
    const Dag dag = with_costs(dag_from_code(6, code), kPatterns[code % 5]);
    const bool keep_last = code / 5 % 2 == 1;
    expect_no_difference(dag, Family::kAllLowerSets, keep_last, some_budgets);
    expect_no_difference(dag, Family::kAncestorSets, keep_last, some_budgets);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(dags, 32768U);
}

// Compares the peak and the time of the papers' schedules with the replay, for gradients that read inputs, outputs or
// both. Returns what differs, or "".
std::string expansion_difference(const Dag& dag) {
  const detail::PapersStep step = detail::papers_step(to_graph(dag));
  std::string wrong;
  for_each_sequence(dag, every_lower_set(dag), [&](const Sequence& sequence) {
    if (!wrong.empty()) return;
    const ReplayResult live = replay(dag, sequence, Frees::kAfterLastTouch);
    const Plan plan = papers_plan(step, to_blocks(dag, sequence), /*keep_last=*/false);
    const auto violation = validate(step.graph, plan);
    wrong = violation ? violation->message : live.error;
    if (!wrong.empty()) return;
    const Simulation simulation = simulate(step.graph, step.costs, plan);
    if (simulation.peak_bytes != live.peak || simulation.recompute_ns != live.extra_time) {
      wrong = "peak " + std::to_string(simulation.peak_bytes) + ", replay " + std::to_string(live.peak) + "; extra " +
              std::to_string(simulation.recompute_ns) + ", replay " + std::to_string(live.extra_time) + "; blocks" +
              ::testing::PrintToString(to_blocks(dag, sequence).block);
    }
  });
  return wrong;
}

TEST(AllDagsTest, PlanOfEverySequenceEqualsTheNaiveReplay) {
  constexpr int kNodes = kSmallTests ? 4 : 5;
  for (int nodes = 1; nodes <= kNodes; ++nodes) {
    for (std::uint32_t code = 0; code < num_codes(nodes); ++code) {
      Dag dag = with_costs(dag_from_code(nodes, code), kPatterns[code % 5]);
      for (int v = 0; v < nodes; ++v) dag.reads.push_back(static_cast<BackwardReads>((code / 5 + 2 * v) % 4 % 3));
      const std::string wrong = expansion_difference(dag);
      if (wrong.empty()) continue;
      const Dag small = shrink(dag, [](const Dag& smaller) { return !expansion_difference(smaller).empty(); });
      FAIL() << wrong << "\nsmallest: " << expansion_difference(small) << '\n' << to_json(small);
    }
  }
}

TEST(AllDagsTest, OutcomesEqualTheReferenceUpToFourNodes) {
  for (int nodes = 1; nodes <= 4; ++nodes) {
    for (std::uint32_t code = 0; code < num_codes(nodes); ++code) {
      const Dag dag = with_costs(dag_from_code(nodes, code), kPatterns[1]);
      const Outcomes outcomes(dag, Family::kAllLowerSets);
      std::size_t sequences = 0;
      for_each_sequence(dag, every_lower_set(dag), [&](const Sequence& sequence) {
        ++sequences;
        std::vector<Mask> masks;
        for (const NodeSet& set : sequence) {
          masks.push_back(0);
          for (const int v : set) masks.back() |= 1U << v;
        }
        const Cost cost = cost_of(dag, sequence);
        const Outcome known{cost.peak(), cost.overhead, cost.overhead - cost.last_block_time, cost.cached};
        EXPECT_EQ(outcomes.outcome(masks), known);
        const ReplayResult plain = replay(dag, sequence, Frees::kAsWritten);
        EXPECT_EQ(plain.error, "");
        EXPECT_EQ(plain.peak, cost.peak()) << to_json(dag);
      });
      EXPECT_EQ(outcomes.num_sequences(), sequences);
    }
  }
}

TEST(AllDagsTest, ChenIsLegalAndItsFormulaIsThatOfItsSequence) {
  constexpr int kNodes = kSmallTests ? 4 : 5;
  for (int nodes = 1; nodes <= kNodes; ++nodes) {
    for (std::uint32_t code = 0; code < num_codes(nodes); ++code) {
      const Dag dag = with_costs(dag_from_code(nodes, code), kPatterns[code % 5]);
      const Outcomes all(dag, Family::kAllLowerSets);
      const auto [graph, costs] = to_graph(dag);
      const Solution found = solve(graph, costs, {.planner = "chen", .judge = Judge::kFormula});
      ASSERT_TRUE(found.found()) << to_json(dag);  // solve() has validated the plan.
      EXPECT_GE(found.formula->peak_bytes, all.smallest_budget());
      EXPECT_GE(found.formula->overhead, all.least_overhead(found.formula->peak_bytes, false).value_or(-1));
      EXPECT_EQ(found.simulation.recompute_ns, found.formula->overhead);
      EXPECT_LE(found.simulation.peak_bytes, found.formula->peak_bytes);
    }
  }
}

}  // namespace
}  // namespace reprise::test
