// What budgets promise, on random graphs, judged by the formula and by the simulator.
#include <algorithm>
#include <numeric>

#include "property/holds.h"
#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/costed.h"
#include "support/random_dag.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::size_t kFewSets = 3000;  // With more lower sets than this, the exact planner answers kStopped.

SolveOptions options_for(const std::string& planner, Judge judge, Objective objective = Objective::kAny) {
  return {.planner = planner,
          .judge = judge,
          .objective = objective,
          .knobs = knobs({.max_lower_sets = kFewSets, .candidates = 10})};
}

// Budgets from just below the smallest feasible one to more than any plan needs.
std::vector<std::int64_t> budgets(std::int64_t smallest, std::int64_t largest) {
  std::vector<std::int64_t> found{std::max<std::int64_t>(0, smallest - 1), smallest, smallest + 1};
  for (int i = 1; i <= 5; ++i) found.push_back(smallest + (largest - smallest) * i / 5);
  return found;
}

// Checks one answer by itself. Returns what is wrong, or "".
std::string wrong_with(const CostedGraph& graph, const Solution& found, std::int64_t budget, Judge judge) {
  if (found.status == Status::kInfeasible) {
    return found.smallest_budget_bytes > budget ? "" : "infeasible, but the smallest budget is within the budget";
  }
  if (!found.found()) return "not found: " + found.message;
  const CostedGraph step = complete_backward(graph);
  if (const auto violation = validate(step.graph, found.plan)) return violation->message;
  if (simulate(step, found.plan) != found.simulation) return "the simulation differs";
  if (!(timeline(step, found.plan).total == found.simulation)) return "the timeline differs";
  if (judge == Judge::kSimulated && found.simulation.peak_bytes > budget) return "over the budget";
  if (judge == Judge::kFormula && found.formula->peak_bytes > budget) return "over the budget by the formula";
  return "";
}

// Answers must not get worse with a larger budget. `better(a, b)` says whether a, at the smaller budget, is better than
// b.
template <typename Better>
std::string more_budget_costs(const Dag& dag, const SolveOptions& base, const Better& better) {
  const CostedGraph graph = to_graph(dag);
  SolveOptions options = base;
  const Solution tightest = solve(graph, options);
  if (tightest.status == Status::kStopped) return "";
  Solution before;
  for (const std::int64_t budget : budgets(tightest.budget_bytes, 2 * dag.total_bytes() + 1)) {
    options.budget_bytes = budget;
    Solution now = solve(graph, options);
    const std::string what = options.planner + " at " + std::to_string(budget) + ": ";
    if (const std::string wrong = wrong_with(graph, now, budget, options.judge); !wrong.empty()) return what + wrong;
    if (now.found() != (budget >= tightest.budget_bytes))
      return what + "feasible below the smallest budget, or not above";
    if (before.found() && better(before, now)) return what + "worse than with less";
    before = std::move(now);
  }
  return "";
}

bool faster(const Solution& a, const Solution& b) { return a.simulation.time_ns < b.simulation.time_ns; }
bool less_overhead(const Solution& a, const Solution& b) { return a.formula->overhead < b.formula->overhead; }
bool more_overhead(const Solution& a, const Solution& b) { return less_overhead(b, a); }
bool fewer_cached(const Solution& a, const Solution& b) { return a.formula->cached_bytes < b.formula->cached_bytes; }

std::string simulated_exact(const Dag& dag) {
  return more_budget_costs(dag, options_for("lower-sets", Judge::kSimulated), faster);
}
std::string simulated_approximate(const Dag& dag) {
  return more_budget_costs(dag, options_for("lower-sets-approx", Judge::kSimulated), faster);
}
std::string simulated_chen(const Dag& dag) {
  return more_budget_costs(dag, options_for("chen", Judge::kSimulated), faster);
}
std::string simulated_none(const Dag& dag) {
  return more_budget_costs(dag, options_for("none", Judge::kSimulated), faster);
}
template <Objective objective>
std::string by_formula(const Dag& dag) {
  const auto better = objective == Objective::kTime          ? less_overhead
                      : objective == Objective::kMaxOverhead ? more_overhead
                                                             : fewer_cached;
  const std::string wrong = more_budget_costs(dag, options_for("lower-sets", Judge::kFormula, objective), better);
  return wrong.empty() ? more_budget_costs(dag, options_for("lower-sets-approx", Judge::kFormula, objective), better)
                       : wrong;
}

TEST(BudgetTest, MoreOfItNeverCostsTimeInTheSimulator) {
  expect_holds(assorted_dags(fewer(80), 5, 12, 1), simulated_exact);
  expect_holds(assorted_dags(fewer(60), 5, 40, 2), simulated_approximate);
  expect_holds(assorted_dags(fewer(80), 5, 40, 3), simulated_chen);
  expect_holds(assorted_dags(fewer(40), 5, 40, 4), simulated_none);
}

TEST(BudgetTest, MoreOfItNeverWorsensTheObjectiveByTheFormula) {
  expect_holds(assorted_dags(fewer(100), 5, 14, 5), by_formula<Objective::kTime>);
  expect_holds(assorted_dags(fewer(100), 5, 14, 6), by_formula<Objective::kMaxOverhead>);
  expect_holds(assorted_dags(fewer(100), 5, 14, 7), by_formula<Objective::kMinCache>);
}

// If gradients read only inputs, the formula's peak is an upper bound, and its overhead is the true one.
std::string formula_differs(const Dag& dag) {
  Dag plain = dag;
  plain.reads.clear();
  const CostedGraph graph = to_graph(plain);
  for (const std::string planner : {"lower-sets", "lower-sets-approx", "chen"}) {
    for (const bool keep_last : {false, true}) {
      SolveOptions options = options_for(planner, Judge::kFormula);
      options.keep_last = keep_last;
      const Solution found = solve(graph, options);
      if (!found.found()) continue;
      if (found.simulation.peak_bytes > found.formula->peak_bytes)
        return planner + ": the true peak is above the formula";
      if (found.simulation.recompute_ns != found.formula->overhead) return planner + ": the true overhead differs";
    }
  }
  return "";
}

TEST(FormulaTest, BoundsTheTruePeakWhereGradientsReadInputsAlone) {
  expect_holds(assorted_dags(fewer(300), 5, 30, 8), formula_differs);
}

std::string keep_last_costs(const Dag& dag) {
  const CostedGraph graph = to_graph(dag);
  for (const std::string planner : {"lower-sets", "lower-sets-approx"}) {
    SolveOptions options = options_for(planner, Judge::kFormula);
    const Solution dropped = solve(graph, options);
    options.keep_last = true;
    const Solution kept = solve(graph, options);
    if (!kept.found() || !dropped.found()) continue;
    if (kept.budget_bytes != dropped.budget_bytes) return planner + ": the smallest budget changes";
    if (kept.formula->overhead > dropped.formula->overhead) return planner + ": more overhead";
  }
  return "";
}

TEST(FormulaTest, KeepingTheLastBlockNeitherRaisesThePeakNorTheOverhead) {
  expect_holds(assorted_dags(fewer(150), 5, 16, 9), keep_last_costs);
}

std::string exact_is_worse(const Dag& dag) {
  const CostedGraph graph = to_graph(dag);
  const auto smallest = [&](const char* planner) { return solve(graph, options_for(planner, Judge::kFormula)); };
  const Solution exact_least = smallest("lower-sets");
  if (!exact_least.found()) return "";
  const std::int64_t low = smallest("lower-sets-approx").budget_bytes;
  if (exact_least.budget_bytes > low) return "the exact planner's smallest budget is larger";
  for (const Judge judge : {Judge::kFormula, Judge::kSimulated}) {
    for (const std::int64_t budget : budgets(low, 2 * dag.total_bytes())) {
      SolveOptions options = options_for("lower-sets-approx", judge);
      options.budget_bytes = budget;
      const Solution approximate = solve(graph, options);
      options.planner = "lower-sets";
      const Solution exact = solve(graph, options);
      if (!approximate.found()) continue;
      if (!exact.found()) return "feasible for the approximate planner alone";
      const bool slower = judge == Judge::kFormula ? less_overhead(approximate, exact) : faster(approximate, exact);
      if (slower) return "the exact planner is slower at " + std::to_string(budget);
    }
  }
  return "";
}

TEST(ExactPlannerTest, IsNeverWorseThanTheApproximateOne) {
  expect_holds(assorted_dags(fewer(60), 5, 12, 10), exact_is_worse);
}

std::string numbering_matters(const Dag& dag) {
  Random random(static_cast<std::uint64_t>(dag.total_bytes() + dag.size()));
  const CostedGraph graph = to_graph(dag);
  const CostedGraph other = to_graph(reordered(dag, random_topological_order(dag, random)));
  for (const std::string planner : {"lower-sets", "lower-sets-approx"}) {
    for (const Objective objective : {Objective::kTime, Objective::kMaxOverhead, Objective::kMinCache}) {
      SolveOptions options = options_for(planner, Judge::kFormula, objective);
      const Solution first = solve(graph, options);
      if (!first.found()) continue;
      for (const std::int64_t budget : {first.budget_bytes, first.budget_bytes * 5 / 4, first.budget_bytes * 2}) {
        options.budget_bytes = budget;
        const Formula a = *solve(graph, options).formula;
        const Formula b = *solve(other, options).formula;
        if (a.overhead != b.overhead) return planner + ": the overhead depends on the numbering";
        const bool cache = objective == Objective::kMinCache;
        if (cache && a.cached_bytes != b.cached_bytes) return planner + ": the cache depends on the numbering";
      }
    }
  }
  return "";
}

TEST(RenumberingTest, LeavesTheFormulaAsItIs) { expect_holds(assorted_dags(fewer(120), 5, 16, 11), numbering_matters); }

std::string answers_vary(const Dag& dag) {
  const CostedGraph graph = to_graph(dag);
  for (const std::string_view planner : planner_names()) {
    for (const Judge judge : {Judge::kFormula, Judge::kSimulated}) {
      const SolveOptions options = options_for(std::string(planner), judge);
      if (solve(graph, options).plan != solve(graph, options).plan) return std::string(planner) + ": two answers";
    }
  }
  return "";
}

TEST(SolveTest, EqualInputGivesEqualPlans) { expect_holds(assorted_dags(fewer(20), 5, 12, 12), answers_vary); }

}  // namespace
}  // namespace reprise::test
