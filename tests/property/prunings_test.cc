// The switches of the search change the work but never the answer, and the error that rounding reports is an upper
// bound.
#include <cstdlib>

#include "property/holds.h"
#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/costed.h"
#include "support/random_dag.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr unsigned kCombinations = 32;

std::shared_ptr<const PlannerKnobs> combination(unsigned bits) {
  return knobs({.max_lower_sets = 400,
                .prunings = {.dominance = (bits & 1U) != 0,
                             .memory_bound = (bits & 2U) != 0,
                             .time_bound = (bits & 4U) != 0,
                             .incumbent = (bits & 8U) != 0,
                             .table = (bits & 16U) != 0}});
}

SolveOptions question(std::string planner, std::int64_t budget, Objective objective) {
  return {.planner = std::move(planner), .budget_bytes = budget, .judge = Judge::kFormula, .objective = objective};
}

// The status, the overhead, and the cached bytes if they are the objective must not depend on the switches.
std::string switches_matter(const CostedGraph& graph, SolveOptions options) {
  options.knobs = combination(0);
  const Solution plain = solve(graph, options);
  for (unsigned bits = 1; bits < kCombinations; ++bits) {
    options.knobs = combination(bits);
    const Solution pruned = solve(graph, options);
    const std::string what = options.planner + " with switches " + std::to_string(bits);
    if (pruned.status != plain.status) return what + ": another status";
    if (pruned.smallest_budget_bytes != plain.smallest_budget_bytes) return what + ": another smallest budget";
    if (!plain.found()) continue;
    if (pruned.formula->overhead != plain.formula->overhead) return what + ": another overhead";
    if (options.objective == Objective::kMinCache && pruned.formula->cached_bytes != plain.formula->cached_bytes) {
      return what + ": another cache";
    }
  }
  return "";
}

std::string any_switch_matters(const Dag& dag) {
  const CostedGraph graph = to_graph(dag);
  const std::int64_t smallest = solve(graph, {.planner = "lower-sets-approx", .judge = Judge::kFormula}).budget_bytes;
  for (const std::string planner : {"lower-sets", "lower-sets-approx"}) {
    for (const Objective objective : {Objective::kTime, Objective::kMaxOverhead, Objective::kMinCache}) {
      for (const std::int64_t budget : {smallest * 4 / 5, smallest, smallest * 5 / 4, 2 * dag.total_bytes()}) {
        const std::string wrong = switches_matter(graph, question(planner, budget, objective));
        if (!wrong.empty()) return wrong + " at " + std::to_string(budget);
      }
    }
  }
  return "";
}

TEST(PruningsTest, AllCombinationsGiveTheSameAnswer) {
  expect_holds(assorted_dags(fewer(60), 5, 11, 21), any_switch_matters);
}

// With room for only one partial, times are rounded. The answer must say how far from the best it can be.
std::string rounding_lies(const Dag& dag) {
  const CostedGraph graph = to_graph(dag);
  const std::int64_t smallest = solve(graph, {.planner = "lower-sets-approx", .judge = Judge::kFormula}).budget_bytes;
  for (const std::string planner : {"lower-sets", "lower-sets-approx"}) {
    for (const Objective objective : {Objective::kTime, Objective::kMaxOverhead}) {
      for (const std::int64_t budget : {smallest, smallest * 5 / 4, smallest * 2}) {
        SolveOptions options = question(planner, budget, objective);
        options.knobs = knobs({.max_lower_sets = 3000});
        const Solution best = solve(graph, options);
        options.knobs = knobs({.max_lower_sets = 3000, .max_partials = 1, .prunings = {.table = false}});
        const Solution rounded = solve(graph, options);
        if (rounded.found() != best.found()) return planner + ": found or not";
        if (!best.found()) continue;
        if (best.overhead_error != 0) return planner + ": rounded without need";
        const std::int64_t off = std::abs(rounded.formula->overhead - best.formula->overhead);
        if (off > rounded.overhead_error) return planner + ": further off than it says";
        if (rounded.status == Status::kOptimal && off != 0) return planner + ": not optimal";
      }
    }
  }
  return "";
}

TEST(RoundingTest, IsNeverFurtherOffThanItSays) { expect_holds(assorted_dags(fewer(100), 5, 20, 22), rounding_lies); }

TEST(RoundingTest, StopsWhereBytesAreTooManyForTheTable) {
  // From 2^51 on, sums of bytes are not exact as doubles, so the table cannot be used, and one partial is not enough.
  Random random(23);
  Dag dag = random_dag({.shape = Shape::kSeriesParallel, .nodes = 10, .nanoseconds = true}, random);
  for (std::int64_t& bytes : dag.bytes) bytes = (bytes << 30) | 1;
  const CostedGraph graph = to_graph(dag);
  for (const Judge judge : {Judge::kFormula, Judge::kSimulated}) {
    SolveOptions options = question("lower-sets", 2 * dag.total_bytes(), Objective::kTime);
    options.judge = judge;
    EXPECT_TRUE(solve(graph, options).found());
    options.budget_bytes = std::nullopt;  // Without a budget, no plan is known that fits.
    options.knobs = knobs({.max_lower_sets = 400, .max_partials = 1, .prunings = {.table = false}});
    const Solution few = solve(graph, options);
    const bool said_so = few.status == Status::kStopped && !few.message.empty();
    EXPECT_TRUE(said_so || (judge == Judge::kSimulated && few.found()));  // Another candidate may fit.
  }
}

}  // namespace
}  // namespace reprise::test
