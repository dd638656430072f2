// What every planner offers to solve(): candidates for the simulator to judge, and its own answer as printed.
#pragma once

#include <optional>
#include <string_view>

#include "papers/forward_view.h"
#include "reprise/solve.h"
#include "solve/front.h"
#include "solve/problem.h"

namespace reprise::detail {

struct Planner {
  std::string_view name;
  // Adds candidates without regard to the budget, so that more budget never gives a slower plan. The step as it is has
  // been added already. Fills stats; sets status to kStopped, with a message, if a limit ended the work.
  void (*propose)(const Problem&, const SolveOptions&, Front&, Solution&);
  // One plan, with the budget compared with the formula. Fills everything of the solution except plan and simulation.
  std::optional<Plan> (*as_printed)(const Problem&, const SolveOptions&, Solution&);
};

extern const Planner kAutoPlanner;
extern const Planner kNonePlanner;
extern const Planner kChenPlanner;
extern const Planner kLowerSetsPlanner;
extern const Planner kLowerSetsApproxPlanner;
extern const Planner kChainStaticPlanner;
extern const Planner kChainPlanner;
extern const Planner kRevolvePlanner;
extern const Planner kRotorPlanner;
extern const Planner kFengHuangPlanner;
extern const Planner kOnlinePlanner;

// For a planner with only one answer: accepts it if its formula fits the budget; otherwise the solution is infeasible
// and names the budget that would be enough.
[[nodiscard]] bool accept_by_formula(const Formula& formula, const SolveOptions& options, Solution& solution);

[[nodiscard]] inline bool asked_to_stop(const SolveOptions& options) {
  return options.should_stop && options.should_stop();
}

inline void stop(Solution& solution, std::string why) {
  solution.status = Status::kStopped;
  solution.message = std::move(why);
}

}  // namespace reprise::detail
