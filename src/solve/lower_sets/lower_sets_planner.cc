// Kusumoto et al.'s planners: sequences over all lower sets (`lower-sets`) or over ancestor sets (`lower-sets-approx`).
//
// A residual block a -> b -> c -> d, a -> d can be cut after a, after b with a also cached, ... ; every sequence of
// such cuts is a plan, and the searches of cache_search.h and overhead_search.h find the best for one internal budget.
// As printed, that budget is the user's and is compared with the formula. Judged by the simulator, a grid of internal
// budgets from the smallest feasible one to that of a single block gives candidates, for each objective; there times
// are rounded, and the grid is coarser the larger the view (Effort), because the simulator has the last word anyway.
//
// The exact planner also proposes what the approximate one does, so it is never worse.
//
// "A graph theoretic framework of recomputation algorithms for memory-efficient backpropagation", NeurIPS 2019. See
// docs/algorithms/lower_sets.md. Tested by tests/oracle, tests/property and tests/golden.
#include "check.h"
#include "solve/lower_sets/family_search.h"
#include "solve/lower_sets/family_sweep.h"
#include "solve/lower_sets/formula.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {
namespace {

std::optional<Plan> find_as_printed(FamilySearch& search, const Problem& problem, const SolveOptions& options,
                                    Solution& solution) {
  if (!options.budget_bytes && !find_smallest(search, solution)) return std::nullopt;
  solution.budget_bytes = options.budget_bytes.value_or(solution.smallest_budget_bytes);
  const Objective objective = options.objective == Objective::kAny ? Objective::kTime : options.objective;
  const std::optional<Blocks> blocks = search.find(solution.budget_bytes, objective, solution);
  if (asked_to_stop(options)) {
    stop(solution, "stopped in the search for a sequence");
    return std::nullopt;
  }
  if (!blocks) {
    if (!find_smallest(search, solution)) return std::nullopt;
    solution.status = Status::kInfeasible;
    if (solution.budget_bytes >= solution.smallest_budget_bytes) {
      stop(solution, "more than " + std::to_string(knobs_of(options).max_partials) + " partial sequences");
    }
    return std::nullopt;
  }
  solution.formula = formula(problem.view(), *blocks, options.keep_last);
  REPRISE_CHECK(solution.formula->peak_bytes <= solution.budget_bytes);
  solution.status = solution.overhead_error == 0 ? Status::kOptimal : Status::kFeasible;
  return problem.plan(*blocks, options.keep_last, Expansion::kAsPrinted);
}

// The families and searches of both planners; the exact one builds on the approximate one.
class Searches {
 public:
  Searches(const Problem& problem, const SolveOptions& options, bool exact, bool keep_last, Solution& solution)
      : approximate_family_(ancestor_sets(problem.view())),
        approximate_(problem, approximate_family_, options, keep_last) {
    solution.stats.lower_sets = approximate_family_.size();
    if (!exact) return;
    exact_family_ = all_lower_sets(problem.view(), knobs_of(options).max_lower_sets);
    if (!exact_family_) {
      stop(solution, "more than " + std::to_string(knobs_of(options).max_lower_sets) +
                         " lower sets; use planner lower-sets-approx, or raise the limit");
      return;
    }
    solution.stats.lower_sets = exact_family_->size();
    exact_.emplace(problem, *exact_family_, options, keep_last);
    exact_->begin_from(approximate_);
  }

  [[nodiscard]] FamilySearch& approximate() { return approximate_; }
  [[nodiscard]] FamilySearch* exact() { return exact_ ? &*exact_ : nullptr; }
  // Both families are the same on every network whose nodes all follow one another.
  [[nodiscard]] bool same_families() const { return exact_family_->size() == approximate_family_.size(); }

 private:
  LowerSetFamily approximate_family_;
  std::optional<LowerSetFamily> exact_family_;
  FamilySearch approximate_;
  std::optional<FamilySearch> exact_;
};

void propose_approximate(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  Searches searches(problem, options, /*exact=*/false, /*keep_last=*/true, solution);
  sweep_family(searches.approximate(), problem, options, front, solution);
}

void propose_exact(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  Searches searches(problem, options, /*exact=*/true, /*keep_last=*/true, solution);
  if (searches.exact() == nullptr) return;
  sweep_family(searches.approximate(), problem, options, front, solution);
  if (solution.status == Status::kStopped || searches.same_families()) return;
  sweep_family(*searches.exact(), problem, options, front, solution);
}

std::optional<Plan> approximate_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  Searches searches(problem, options, /*exact=*/false, options.keep_last, solution);
  return find_as_printed(searches.approximate(), problem, options, solution);
}

std::optional<Plan> exact_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  Searches searches(problem, options, /*exact=*/true, options.keep_last, solution);
  if (searches.exact() == nullptr) return std::nullopt;
  return find_as_printed(*searches.exact(), problem, options, solution);
}

}  // namespace

const Planner kLowerSetsPlanner{.name = "lower-sets", .propose = propose_exact, .as_printed = exact_as_printed};
const Planner kLowerSetsApproxPlanner{
    .name = "lower-sets-approx", .propose = propose_approximate, .as_printed = approximate_as_printed};

}  // namespace reprise::detail
