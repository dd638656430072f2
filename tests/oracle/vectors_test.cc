// On the graphs of vectors.h, compares the reference with the known numbers, and then the core with both.
#include "oracle/vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "oracle/core.h"
#include "oracle/replay.h"
#include "reprise/solve.h"
#include "support/costed.h"

namespace reprise::test {
namespace {

using ::testing::ElementsAre;

Sequence to_sequence(const Dag& dag, const Cuts& cuts) {
  Sequence sequence;
  for (const auto& cut : cuts) sequence.emplace_back(cut.begin(), cut.end());
  sequence.push_back(all_nodes(dag));
  return sequence;
}

std::vector<Known> all_known() {
  std::vector<Known> known = known_graphs();
  known.push_back(chain_of_three());
  return known;
}

// The value at a budget, or nothing below the first budget of the staircase.
std::optional<std::int64_t> value_at(const Staircase& staircase, std::int64_t budget) {
  std::optional<std::int64_t> value;
  for (const auto& [from, v] : staircase) {
    if (budget >= from) value = v;
  }
  return value;
}

TEST(ReferenceTest, GivesTheKnownCostsOfTheKnownSequences) {
  for (const Known& known : all_known()) {
    for (const KnownSequence& row : known.sequences) {
      SCOPED_TRACE(known.name + " with " + std::to_string(row.cuts.size()) + " cuts");
      const Sequence sequence = to_sequence(known.dag, row.cuts);
      const Cost cost = cost_of(known.dag, sequence);
      EXPECT_EQ(cost.overhead, row.overhead);
      EXPECT_EQ(cost.passes, row.passes);
      EXPECT_EQ(cost.cached, row.cached);
      EXPECT_EQ(replay(known.dag, sequence, Frees::kAfterLastTouch).peak, row.live_peak);
    }
  }
}

TEST(ReferenceTest, CountsTheKnownLowerSetsAndSequences) {
  std::size_t total = 0;
  for (const Known& known : all_known()) {
    SCOPED_TRACE(known.name);
    const auto count = [&](const std::vector<NodeSet>& family) {
      std::size_t sequences = 0;
      for_each_sequence(known.dag, family, [&](const Sequence&) { ++sequences; });
      return sequences;
    };
    EXPECT_EQ(every_lower_set(known.dag).size(), known.all.lower_sets);
    EXPECT_EQ(ancestor_family(known.dag).size(), known.ancestors.lower_sets);
    EXPECT_EQ(count(every_lower_set(known.dag)), known.all.sequences);
    EXPECT_EQ(count(ancestor_family(known.dag)), known.ancestors.sequences);
    if (known.name != "H") total += known.all.sequences;
  }
  EXPECT_EQ(total, 1176U);
}

TEST(ReferenceTest, ReplayOfEverySequenceIsItsFormula) {
  for (const Known& known : all_known()) {
    for_each_sequence(known.dag, every_lower_set(known.dag), [&](const Sequence& sequence) {
      const Cost cost = cost_of(known.dag, sequence);
      const ReplayResult plain = replay(known.dag, sequence, Frees::kAsWritten);
      const ReplayResult live = replay(known.dag, sequence, Frees::kAfterLastTouch);
      EXPECT_EQ(plain.error, "");
      EXPECT_EQ(live.error, "");
      EXPECT_EQ(plain.peak, cost.peak());
      EXPECT_EQ(plain.extra_time, cost.overhead);
      EXPECT_EQ(live.extra_time, cost.overhead);
      EXPECT_LE(live.peak, cost.peak());
    });
  }
}

TEST(ReferenceTest, HoldsTheKnownBytesAfterEachComputeOfTheDiamond) {
  const Known known = known_graphs()[2];
  const Sequence sequence = to_sequence(known.dag, {{0}, {0, 1, 2}, {0, 1, 2, 3}});
  EXPECT_THAT(replay(known.dag, sequence, Frees::kAsWritten).after_compute,
              ElementsAre(2, 5, 6, 8, 9, /*backward*/ 9, 10, 11, 12, 8, 8, 8));
}

TEST(ReferenceTest, ReachesTheSetsOfTheDiamondAsKnown) {
  using Entries = std::map<std::int64_t, std::int64_t>;  // overhead -> fewest cached bytes
  const Dag dag = known_graphs()[2].dag;
  std::map<NodeSet, Entries> table{{{}, {{0, 0}}}};
  for_each_sequence(dag, every_lower_set(dag), [&](const Sequence& sequence) {
    for (std::size_t k = 1; k <= sequence.size(); ++k) {
      const Cost cost = cost_of(dag, Sequence(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(k)));
      if (cost.peak() > 12) break;
      const auto it = table[sequence[k - 1]].try_emplace(cost.overhead, cost.cached).first;
      it->second = std::min(it->second, cost.cached);
    }
  });
  const std::map<NodeSet, Entries> known{{{}, {{0, 0}}},
                                         {{0}, {{0, 2}}},
                                         {{0, 1}, {{0, 5}}},
                                         {{0, 2}, {{0, 3}}},
                                         {{0, 1, 2}, {{0, 6}}},
                                         {{0, 1, 2, 3}, {{0, 8}, {10, 7}}},
                                         {{0, 1, 2, 3, 4}, {{1, 8}, {2, 6}, {11, 7}}}};
  EXPECT_EQ(table, known);
}

TEST(OutcomesTest, HaveTheKnownBestAtEveryBudget) {
  for (const Known& known : all_known()) {
    SCOPED_TRACE(known.name);
    const Outcomes all(known.dag, Family::kAllLowerSets);
    const Outcomes ancestors(known.dag, Family::kAncestorSets);
    EXPECT_EQ(all.smallest_budget(), known.all.smallest_budget);
    EXPECT_EQ(ancestors.smallest_budget(), known.ancestors.smallest_budget);
    EXPECT_EQ(all.num_sequences(), known.all.sequences);
    EXPECT_EQ(ancestors.num_sequences(), known.ancestors.sequences);
    for (std::int64_t budget = 0; budget <= 2 * known.dag.total_bytes() + 1; ++budget) {
      EXPECT_EQ(all.least_overhead(budget, false), value_at(known.all.least_overhead, budget)) << budget;
      EXPECT_EQ(all.most_overhead(budget, false), value_at(known.all.most_overhead, budget)) << budget;
      EXPECT_EQ(ancestors.least_overhead(budget, false), value_at(known.ancestors.least_overhead, budget)) << budget;
      EXPECT_EQ(ancestors.most_overhead(budget, false), value_at(known.ancestors.most_overhead, budget)) << budget;
    }
    for (const KnownLeastCache& row : known.least_cache) {
      EXPECT_EQ(all.least_cache(row.budget, false), std::pair(row.cached, row.overhead)) << row.budget;
    }
  }
}

TEST(CoreTest, DescribesTheKnownLowerSets) {
  for (const Known& known : all_known()) {
    const detail::ForwardView view = detail::forward_view(to_graph(known.dag));
    const auto family = detail::all_lower_sets(view, 1000);
    ASSERT_TRUE(family.has_value());
    ASSERT_EQ(family->size(), known.all.lower_sets);
    EXPECT_EQ(detail::ancestor_sets(view).size(), known.ancestors.lower_sets);
    for (detail::SetId set = 0; set < family->size(); ++set) {
      NodeSet nodes;
      for (int v = 0; v < known.dag.size(); ++v) {
        if (family->contains(set, static_cast<detail::NodeId>(v))) nodes.insert(v);
      }
      const NodeSet fed = successors(known.dag, nodes);
      const std::int64_t back =
          bytes_of(known.dag, minus(fed, nodes)) + bytes_of(known.dag, minus(predecessors(known.dag, fed), nodes));
      const auto found = family->boundary(set);
      EXPECT_EQ(family->bytes(set), bytes_of(known.dag, nodes));
      EXPECT_EQ(family->time(set), time_of(known.dag, nodes));
      EXPECT_EQ(family->back_bytes(set), back);
      EXPECT_EQ(NodeSet(found.begin(), found.end()), boundary(known.dag, nodes));
    }
  }
}

TEST(CoreTest, FormulaAndPlanOfEverySequenceAgreeWithTheReference) {
  for (const Known& known : all_known()) {
    const detail::PapersStep step = detail::papers_step(to_graph(known.dag));
    for_each_sequence(known.dag, every_lower_set(known.dag), [&](const Sequence& sequence) {
      const detail::Blocks blocks = to_blocks(known.dag, sequence);
      const Cost cost = cost_of(known.dag, sequence);
      const ReplayResult live = replay(known.dag, sequence, Frees::kAfterLastTouch);
      for (const bool keep_last : {false, true}) {
        const std::int64_t overhead = cost.overhead - (keep_last ? cost.last_block_time : 0);
        EXPECT_EQ(detail::formula(step.view, blocks, keep_last),
                  (Formula{overhead, cost.peak(), cost.cached, sequence.size()}));
        const Plan plan = papers_plan(step, blocks, keep_last);
        ASSERT_FALSE(validate(step.graph, plan).has_value());
        const Simulation simulation = simulate(step.graph, step.costs, plan);
        EXPECT_EQ(simulation.peak_bytes, live.peak) << known.name;  // Keeping the last block does not change the peak.
        EXPECT_EQ(simulation.recompute_ns, overhead);
        EXPECT_EQ(simulation.time_ns, known.dag.total_time() + overhead);
      }
    });
  }
}

struct Question {
  const Known& known;
  const Outcomes& outcomes;
  std::string planner;
  std::int64_t budget;
  bool keep_last;
};

Solution ask(const Question& q, Objective objective) {
  return solve(to_graph(q.known.dag), {.planner = q.planner,
                                       .budget_bytes = q.budget,
                                       .judge = Judge::kFormula,
                                       .objective = objective,
                                       .keep_last = q.keep_last});
}

void expect_common(const Question& q, const Solution& solution) {
  const bool feasible = q.budget >= q.outcomes.smallest_budget();
  ASSERT_EQ(solution.status, feasible ? Status::kOptimal : Status::kInfeasible);
  if (!feasible) {
    EXPECT_EQ(solution.smallest_budget_bytes, q.outcomes.smallest_budget());
    EXPECT_TRUE(solution.plan.actions.empty());
    return;
  }
  EXPECT_LE(solution.formula->peak_bytes, q.budget);
  EXPECT_LE(solution.simulation.peak_bytes, solution.formula->peak_bytes);
  EXPECT_EQ(solution.simulation.recompute_ns, solution.formula->overhead);
}

void expect_best(const Question& q) {
  const Solution time = ask(q, Objective::kTime);
  const Solution most = ask(q, Objective::kMaxOverhead);
  const Solution cache = ask(q, Objective::kMinCache);
  for (const Solution* solution : {&time, &most, &cache}) expect_common(q, *solution);
  if (q.budget < q.outcomes.smallest_budget()) return;
  EXPECT_EQ(time.formula->overhead, q.outcomes.least_overhead(q.budget, q.keep_last));
  EXPECT_EQ(most.formula->overhead, q.outcomes.most_overhead(q.budget, q.keep_last));
  EXPECT_EQ(std::pair(cache.formula->cached_bytes, cache.formula->overhead),
            q.outcomes.least_cache(q.budget, q.keep_last));
}

TEST(SolveTest, FindsTheBestSequenceAtEveryBudgetOfTheKnownGraphs) {
  for (const Known& known : all_known()) {
    const Outcomes all(known.dag, Family::kAllLowerSets);
    const Outcomes ancestors(known.dag, Family::kAncestorSets);
    for (std::int64_t budget = 0; budget <= 2 * known.dag.total_bytes() + 1; ++budget) {
      for (const bool keep_last : {false, true}) {
        SCOPED_TRACE(known.name + " at " + std::to_string(budget) + (keep_last ? ", last block kept" : ""));
        expect_best({known, all, "lower-sets", budget, keep_last});
        expect_best({known, ancestors, "lower-sets-approx", budget, keep_last});
      }
    }
  }
}

TEST(SolveTest, FindsTheSmallestBudgetOfTheKnownGraphsWhenNoneIsGiven) {
  for (const Known& known : all_known()) {
    const auto smallest = [&](const char* planner) {
      return solve(to_graph(known.dag), {.planner = planner, .judge = Judge::kFormula}).budget_bytes;
    };
    EXPECT_EQ(smallest("lower-sets"), known.all.smallest_budget) << known.name;
    EXPECT_EQ(smallest("lower-sets-approx"), known.ancestors.smallest_budget) << known.name;
  }
}

}  // namespace
}  // namespace reprise::test
