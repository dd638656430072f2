// What every planner offers to solve(): candidates for the simulator to judge, and its own answer as printed.
#pragma once

#include <functional>
#include <string_view>

#include "graph/forward_view.h"
#include "reprise/solve.h"
#include "solve/problem.h"

namespace reprise::detail {

// Takes a planner's proposal. Each is tried with the last block kept and recomputed.
using Propose = std::function<void(const Blocks&)>;

struct Planner {
  std::string_view name;
  // Proposes without regard to the budget, so that more budget never gives a slower plan. The step as it is was
  // considered already. Fills stats; sets status to kStopped with a message where a limit ended the work.
  void (*propose)(const Problem&, const SolveOptions&, const Propose&, Solution&);
  // One sequence, the budget held against the formula. Fills everything but plan and simulation. Returns no blocks
  // where the solution has none.
  std::optional<Blocks> (*as_printed)(const Problem&, const SolveOptions&, Solution&);
};

extern const Planner kNonePlanner;
extern const Planner kChenPlanner;
extern const Planner kLowerSetsPlanner;
extern const Planner kLowerSetsApproxPlanner;

// Accepts the blocks when their formula fits the budget; otherwise says infeasible and what would do.
[[nodiscard]] std::optional<Blocks> accept_by_formula(Blocks blocks, const Problem& problem,
                                                      const SolveOptions& options, bool keep_last, Solution& solution);

}  // namespace reprise::detail
