// Kusumoto et al.'s planners: sequences over all lower sets (`lower-sets`) or over ancestor sets (`lower-sets-approx`).
//
// A residual block a -> b -> c -> d, a -> d can be cut after a, after b with a also cached, ... ; every sequence of
// such cuts is a plan, and the searches of cache_search.h and overhead_search.h find the best for one internal budget.
// As printed, that budget is the user's and is held against the formula. Judged by the simulator, a grid of internal
// budgets from the smallest feasible one to that of a single block gives candidates, for each objective; there times
// are rounded, and the grid is coarser the larger the graph (Effort), because the simulator has the last word anyway.
//
// The exact planner also proposes what the approximate one does, so it is never worse.
//
// "A graph theoretic framework of recomputation algorithms for memory-efficient backpropagation", NeurIPS 2019. See
// docs/algorithms/lower_sets.md. Tested by tests/oracle, tests/property and tests/golden.
#include <algorithm>
#include <cmath>
#include <utility>

#include "check.h"
#include "solve/family_search.h"
#include "solve/formula.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

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

// How hard to look for candidates, by the number of nodes: a search costs about nodes^2 * units.
struct Effort {
  std::size_t budgets;  // for the objectives on overhead; the least cache is cheap
  std::int64_t units;
};

Effort effort(std::size_t nodes, std::size_t candidates) {
  constexpr double kFullGridNodes = 600;  // up to here the whole grid takes about a second
  constexpr std::size_t kFewestBudgets = 8;
  constexpr std::size_t kMostNodes = 4000;
  if (nodes > kMostNodes) return {.budgets = 0, .units = 1024};
  const double share = std::min(1.0, std::pow(kFullGridNodes / static_cast<double>(nodes + 1), 3.0));
  const auto budgets = static_cast<std::size_t>(std::ceil(share * static_cast<double>(candidates)));
  return {.budgets = std::min(candidates, std::max(kFewestBudgets, budgets)),
          .units = std::clamp<std::int64_t>(2 * static_cast<std::int64_t>(nodes), 1024, 8192)};
}

// `count` budgets from `low` to `high`, evenly spaced in their logarithm; coarse spacings first, so that an early end
// leaves an even picture.
std::vector<std::int64_t> budget_grid(std::int64_t low, std::int64_t high, std::size_t count) {
  const double ratio = static_cast<double>(high) / static_cast<double>(std::max<std::int64_t>(1, low));
  std::size_t stride = 1;
  while (stride < count) stride *= 2;
  std::vector<std::int64_t> grid;
  std::vector<std::uint8_t> taken(count, 0);
  for (; stride > 0; stride /= 2) {
    for (std::size_t i = 0; i < count; i += stride) {
      if (std::exchange(taken[i], 1) != 0) continue;
      const double share = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0.0;
      const double budget = static_cast<double>(low) * std::pow(std::max(1.0, ratio), share);
      grid.push_back(budget >= static_cast<double>(high) ? high : std::max(low, static_cast<std::int64_t>(budget)));
    }
  }
  return grid;
}

struct Target {
  std::int64_t budget_bytes;
  Objective objective;
};

// All internal budgets and objectives, cheap ones first.
std::vector<Target> targets(std::int64_t low, const Problem& problem, const SolveOptions& options,
                            const Effort& effort) {
  const std::int64_t high = 2 * problem.view().total_bytes();
  std::vector<Target> result;
  for (const Objective objective : {Objective::kMinCache, Objective::kTime, Objective::kMaxOverhead}) {
    if (options.objective != Objective::kAny && options.objective != objective) continue;
    const bool cheap = objective == Objective::kMinCache;
    for (const std::int64_t budget : budget_grid(low, high, cheap ? options.candidates : effort.budgets)) {
      result.push_back({budget, objective});
    }
  }
  return result;
}

void sweep(FamilySearch& search, const Problem& problem, const SolveOptions& options, Front& front,
           Solution& solution) {
  if (!find_smallest(search, solution)) return;
  const std::int64_t low = std::exchange(solution.smallest_budget_bytes, 0);  // under the formula, not the judge
  const Effort how_hard = effort(problem.view().num_nodes(), options.candidates);
  search.round_to(how_hard.units);
  const std::vector<Target> all = targets(low, problem, options, how_hard);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::optional<Blocks> blocks = search.find(all[i].budget_bytes, all[i].objective, solution);
    if (asked_to_stop(options)) {
      return stop(solution, "stopped after " + std::to_string(i) + " of " + std::to_string(all.size()) + " candidates");
    }
    if (blocks) front.add(*blocks);
    if (options.progress) options.progress(i + 1, all.size());
  }
  solution.overhead_error = 0;  // bounds the formula at one internal budget, not the plan chosen here
}

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
      stop(solution, "more than " + std::to_string(options.max_labels) + " labels");
    }
    return std::nullopt;
  }
  solution.formula = formula(problem.view(), *blocks, options.keep_last);
  REPRISE_CHECK(solution.formula->peak_bytes <= solution.budget_bytes);
  solution.status = solution.overhead_error == 0 ? Status::kOptimal : Status::kFeasible;
  return problem.plan(*blocks, options.keep_last, Expansion::kAsPrinted);
}

// Families and searches of both planners: the exact one stands on the approximate one.
class Searches {
 public:
  Searches(const Problem& problem, const SolveOptions& options, bool exact, bool keep_last, Solution& solution)
      : approximate_family_(ancestor_sets(problem.view())),
        approximate_(problem, approximate_family_, options, keep_last) {
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
  // As on every network whose nodes all follow one another.
  [[nodiscard]] bool same_families() const { return exact_family_->size() == approximate_family_.size(); }

 private:
  LowerSetFamily approximate_family_;
  std::optional<LowerSetFamily> exact_family_;
  FamilySearch approximate_;
  std::optional<FamilySearch> exact_;
};

void propose_approximate(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  Searches searches(problem, options, /*exact=*/false, /*keep_last=*/true, solution);
  sweep(searches.approximate(), problem, options, front, solution);
}

void propose_exact(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  Searches searches(problem, options, /*exact=*/true, /*keep_last=*/true, solution);
  if (searches.exact() == nullptr) return;
  sweep(searches.approximate(), problem, options, front, solution);
  if (solution.status == Status::kStopped || searches.same_families()) return;
  sweep(*searches.exact(), problem, options, front, solution);
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
