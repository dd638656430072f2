// Candidates from one family of lower sets: its best sequences at a grid of internal budgets, for each objective.
//
// The grid goes from the smallest feasible budget to that of a single block. Times are rounded, and the grid is coarser
// the larger the view, because the simulator has the last word anyway.
#pragma once

#include <cstdint>
#include <vector>

#include "solve/front.h"
#include "solve/lower_sets/family_search.h"

namespace reprise::detail {

void sweep_family(FamilySearch& search, const Problem& problem, const SolveOptions& options, Front& front,
                  Solution& solution);

// Fills in the smallest feasible budget; returns false if asked to stop.
[[nodiscard]] bool find_smallest(FamilySearch& search, Solution& solution);

// `count` budgets from `low` to `high`, evenly spaced in their logarithm; coarse spacings first, so that an early end
// leaves an even picture.
[[nodiscard]] std::vector<std::int64_t> budget_grid(std::int64_t low, std::int64_t high, std::size_t count);

}  // namespace reprise::detail
