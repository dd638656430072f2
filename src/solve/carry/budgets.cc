#include "solve/carry/budgets.h"

#include <algorithm>
#include <utility>

#include "reprise/simulate.h"
#include "solve/carry/carry.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

constexpr std::int64_t kRungs = 20;
constexpr int kHalvings = 5;

// A plan within the budget that copies and is faster than all of the front.
std::optional<Plan> carried(const Problem& problem, const SolveOptions& options, const Front& without,
                            std::int64_t budget_bytes, bool searches) {
  SolveOptions within = options;
  within.budget_bytes = budget_bytes;
  Front front = without;
  CarrySearch(problem, within, front).run(searches);
  const Front::Point* best = front.fastest(budget_bytes);
  if (best == nullptr || !copies(best->plan)) return std::nullopt;
  return best->plan;
}

// Calls `fits(budget)` between two budgets, of which the larger is known to fit, and returns the least that does.
template <typename Fits>
std::int64_t halve(std::int64_t too_little, std::int64_t enough, const Fits& fits) {
  for (int i = 0; i < kHalvings && enough - too_little > 1; ++i) {
    const std::int64_t middle = too_little + (enough - too_little) / 2;
    (fits(middle) ? enough : too_little) = middle;
  }
  return enough;
}

// No plan has a lower peak, with copies or without.
std::int64_t too_little_for_any(const Problem& problem) { return most_of_one_op(problem.step(), problem.costs()) - 1; }

}  // namespace

bool carry_along(const Problem& problem, const SolveOptions& options, Front& front) {
  const Front without = front;
  const auto take = [&](std::int64_t budget_bytes) {
    if (asked_to_stop(options)) return false;
    std::optional<Plan> plan = carried(problem, options, without, budget_bytes, /*searches=*/true);
    if (!plan) return false;
    front.add_carrying(std::move(*plan), options.host_budget_bytes);
    return true;
  };
  const std::int64_t least = without.points().begin()->first;
  const std::int64_t most = without.points().rbegin()->first;
  for (std::int64_t rung = kRungs - 1; rung >= 0; --rung) (void)take(least + (most - least) / kRungs * rung);
  (void)halve(too_little_for_any(problem), least, take);
  return !asked_to_stop(options);
}

std::optional<std::int64_t> least_carried(const Problem& problem, const SolveOptions& options, const Front& front,
                                          std::int64_t above_bytes) {
  const std::int64_t least = front.points().begin()->first;
  const std::int64_t found = halve(std::max(above_bytes, too_little_for_any(problem)), least, [&](std::int64_t budget) {
    return !asked_to_stop(options) && carried(problem, options, front, budget, /*searches=*/false);
  });
  return found < least ? std::optional(found) : std::nullopt;
}

}  // namespace reprise::detail
