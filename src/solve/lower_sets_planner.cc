// Kusumoto et al.'s planners: sequences over all lower sets (`lower-sets`) or over ancestor sets (`lower-sets-approx`).
//
// A residual block a -> b -> c -> d, a -> d can be cut after a, after b with a also cached, ... ; every sequence of
// such cuts is a plan, and the searches of cache_search.h and overhead_search.h find the best for one internal budget.
// As printed, that budget is the user's and is held against the formula. Judged by the simulator, a grid of internal
// budgets from the smallest feasible one to that of a single block gives candidates, for each objective.
//
// The exact planner also proposes what the approximate one does, so it is never worse.
//
// "A graph theoretic framework of recomputation algorithms for memory-efficient backpropagation", NeurIPS 2019. See
// docs/algorithms/lower_sets.md. Tested by tests/oracle, tests/property and tests/golden.
#include <algorithm>
#include <cmath>
#include <utility>

#include "check.h"
#include "solve/formula.h"
#include "solve/overhead_search.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

bool asked_to_stop(const SolveOptions& options) { return options.should_stop && options.should_stop(); }

void stop(Solution& solution, std::string why) {
  solution.status = Status::kStopped;
  solution.message = std::move(why);
}

// One family of lower sets of one problem, with its smallest budget.
class FamilySearch {
 public:
  FamilySearch(const Problem& problem, const LowerSetFamily& family, const SolveOptions& options, bool keep_last)
      : view_(problem.view()), options_(options), transitions_(problem.view(), family, keep_last) {}

  // Answers of the same planner on a smaller family, to begin from.
  void begin_from(FamilySearch& smaller) {
    if (options_.prunings.incumbent) smaller_ = &smaller;
  }

  // Nothing: asked to stop.
  [[nodiscard]] std::optional<std::int64_t> smallest_budget() {
    if (!smallest_) {
      smallest_ = smallest_formula_budget(transitions_, smaller_ ? smaller_->smallest_budget() : std::nullopt,
                                          options_.should_stop);
    }
    return smallest_;
  }

  // Nothing: infeasible, or asked to stop.
  [[nodiscard]] std::optional<Blocks> find(std::int64_t budget, Objective objective, Solution& solution) {
    if (objective == Objective::kMinCache) {
      const auto sequence = least_cache_sequence(transitions_, budget);
      return sequence ? std::optional(transitions_.family().blocks(*sequence)) : std::nullopt;
    }
    const OverheadResult result =
        extreme_overhead_sequence(transitions_, {.budget_bytes = budget,
                                                 .most = objective == Objective::kMaxOverhead,
                                                 .prunings = options_.prunings,
                                                 .known_overhead = known_overhead(budget, objective),
                                                 .max_labels = options_.max_labels,
                                                 .should_stop = options_.should_stop});
    solution.stats.labels += result.labels;
    solution.overhead_error = result.overhead_error;
    return result.sequence ? std::optional(transitions_.family().blocks(*result.sequence)) : std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<std::int64_t> known_overhead(std::int64_t budget, Objective objective) {
    if (smaller_ == nullptr) return std::nullopt;
    Solution ignored;
    const auto blocks = smaller_->find(budget, objective, ignored);
    if (!blocks || ignored.overhead_error != 0) return std::nullopt;
    return formula(view_, *blocks, transitions_.keep_last()).overhead;
  }

  const ForwardView& view_;
  const SolveOptions& options_;
  Transitions transitions_;
  FamilySearch* smaller_ = nullptr;
  std::optional<std::int64_t> smallest_;
};

// Budgets from `low` to `high`, evenly spaced in their logarithm, coarse ones first.
std::vector<std::int64_t> budget_grid(std::int64_t low, std::int64_t high, std::size_t count) {
  std::vector<std::int64_t> grid;
  const double ratio =
      std::log(std::max(1.0, static_cast<double>(high) / static_cast<double>(std::max<std::int64_t>(1, low))));
  std::size_t stride = 1;
  while (stride < count) stride *= 2;
  for (; stride > 0; stride /= 2) {
    for (std::size_t i = 0; i < count; i += stride) {
      if (i % (2 * stride) == 0 && !grid.empty() && i != 0) continue;
      if (i == 0 && !grid.empty()) continue;
      const double share = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0.0;
      const auto budget = static_cast<std::int64_t>(static_cast<double>(low) * std::exp(ratio * share));
      grid.push_back(std::clamp(budget, low, high));
    }
  }
  return grid;
}

std::vector<Objective> objectives(const SolveOptions& options) {
  if (options.objective != Objective::kAny) return {options.objective};
  return {Objective::kMinCache, Objective::kTime, Objective::kMaxOverhead};
}

// Fills in the smallest feasible budget; false where asked to stop.
bool find_smallest(FamilySearch& search, Solution& solution) {
  const std::optional<std::int64_t> smallest = search.smallest_budget();
  if (!smallest) {
    stop(solution, "stopped while looking for the smallest budget");
    return false;
  }
  solution.smallest_budget_bytes = *smallest;
  return true;
}

void sweep(FamilySearch& search, const Problem& problem, const SolveOptions& options, const Propose& propose,
           Solution& solution) {
  if (!find_smallest(search, solution)) return;
  const std::int64_t low = std::exchange(solution.smallest_budget_bytes, 0);  // under the formula, not the judge
  const std::vector<std::int64_t> grid = budget_grid(low, 2 * problem.view().total_bytes(), options.candidates);
  const std::vector<Objective> all = objectives(options);
  std::size_t done = 0;
  for (const std::int64_t budget : grid) {
    for (const Objective objective : all) {
      const std::optional<Blocks> blocks = search.find(budget, objective, solution);
      if (asked_to_stop(options)) {
        return stop(solution, "stopped after " + std::to_string(done) + " of " +
                                  std::to_string(grid.size() * all.size()) + " candidates");
      }
      REPRISE_CHECK(blocks.has_value());
      propose(*blocks);
      if (options.progress) options.progress(++done, grid.size() * all.size());
    }
  }
  solution.overhead_error = 0;  // bounds the formula at one internal budget, not the plan chosen here
}

std::optional<Blocks> find_as_printed(FamilySearch& search, const Problem& problem, const SolveOptions& options,
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
    if (find_smallest(search, solution)) solution.status = Status::kInfeasible;
    return std::nullopt;
  }
  solution.formula = formula(problem.view(), *blocks, options.keep_last);
  REPRISE_CHECK(solution.formula->peak_bytes <= solution.budget_bytes);
  solution.status = solution.overhead_error == 0 ? Status::kOptimal : Status::kFeasible;
  return blocks;
}

// Families and searches of both planners: the exact one stands on the approximate one.
class Searches {
 public:
  Searches(const Problem& problem, const SolveOptions& options, bool exact, bool keep_last, Solution& solution)
      : approximate_family_(ancestor_sets(problem.view())),
        approximate_(problem, approximate_family_, options, keep_last) {
    solution.stats.nodes = problem.view().num_nodes();
    solution.stats.lower_sets = approximate_family_.size();
    if (!exact) return;
    exact_family_ = all_lower_sets(problem.view(), options.max_lower_sets);
    if (!exact_family_) {
      stop(solution, "more than " + std::to_string(options.max_lower_sets) +
                         " lower sets; use planner lower-sets-approx, or raise the limit");
      return;
    }
    solution.stats.lower_sets = exact_family_->size();
    exact_.emplace(problem, *exact_family_, options, keep_last);
    exact_->begin_from(approximate_);
  }

  [[nodiscard]] FamilySearch& approximate() { return approximate_; }
  [[nodiscard]] FamilySearch* exact() { return exact_ ? &*exact_ : nullptr; }

 private:
  LowerSetFamily approximate_family_;
  std::optional<LowerSetFamily> exact_family_;
  FamilySearch approximate_;
  std::optional<FamilySearch> exact_;
};

void propose_approximate(const Problem& problem, const SolveOptions& options, const Propose& propose,
                         Solution& solution) {
  Searches searches(problem, options, /*exact=*/false, /*keep_last=*/true, solution);
  propose(problem.one_block());
  sweep(searches.approximate(), problem, options, propose, solution);
}

void propose_exact(const Problem& problem, const SolveOptions& options, const Propose& propose, Solution& solution) {
  Searches searches(problem, options, /*exact=*/true, /*keep_last=*/true, solution);
  if (searches.exact() == nullptr) return;
  propose(problem.one_block());
  sweep(searches.approximate(), problem, options, propose, solution);
  if (solution.status != Status::kStopped || solution.message.empty()) {
    sweep(*searches.exact(), problem, options, propose, solution);
  }
}

std::optional<Blocks> approximate_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  Searches searches(problem, options, /*exact=*/false, options.keep_last, solution);
  return find_as_printed(searches.approximate(), problem, options, solution);
}

std::optional<Blocks> exact_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  Searches searches(problem, options, /*exact=*/true, options.keep_last, solution);
  if (searches.exact() == nullptr) return std::nullopt;
  return find_as_printed(*searches.exact(), problem, options, solution);
}

}  // namespace

const Planner kLowerSetsPlanner{.name = "lower-sets", .propose = propose_exact, .as_printed = exact_as_printed};
const Planner kLowerSetsApproxPlanner{
    .name = "lower-sets-approx", .propose = propose_approximate, .as_printed = approximate_as_printed};

}  // namespace reprise::detail
