#include "solve/lower_sets/family_sweep.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {

bool find_smallest(FamilySearch& search, Solution& solution) {
  const std::optional<std::int64_t> smallest = search.smallest_budget();
  if (!smallest) {
    stop(solution, "stopped while looking for the smallest budget");
    return false;
  }
  solution.smallest_budget_bytes = *smallest;
  return true;
}

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

namespace {

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
    for (const std::int64_t budget : budget_grid(low, high, cheap ? knobs_of(options).candidates : effort.budgets)) {
      result.push_back({budget, objective});
    }
  }
  return result;
}

}  // namespace

void sweep_family(FamilySearch& search, const Problem& problem, const SolveOptions& options, Front& front,
                  Solution& solution) {
  if (!find_smallest(search, solution)) return;
  const std::int64_t low = std::exchange(solution.smallest_budget_bytes, 0);  // under the formula, not the judge
  const Effort how_hard = effort(problem.view().num_nodes(), knobs_of(options).candidates);
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

}  // namespace reprise::detail
