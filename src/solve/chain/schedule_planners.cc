// Planners that run the stages of a chain again and again: `revolve` and `rotor`.
//
//   revolve  Griewank and Walther: equal stages, s states, fewest forward runs (chain/revolve.h)
//   rotor    Beaumont et al.: least time within a budget among persistent schedules (chain/rotor.h)
//
// Their schedules are runs of stages; expand_chain.h turns them into runs of ops, and what is kept follows from what is
// not run again. As printed, the budget is compared with their own count: states of the largest stage for revolve,
// units of memory for rotor. Tested by tests/oracle and tests/property.
#include <algorithm>

#include "solve/chain/chain_problem.h"
#include "solve/chain/revolve.h"
#include "solve/chain/rotor.h"
#include "solve/lower_sets/family_sweep.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {
namespace {

// If no forward op may be repeated, the answer is the step as it is.
std::optional<Plan> nothing_to_plan(const Problem& problem, const SolveOptions& options, Solution& solution) {
  if (!accept_by_formula({}, options, solution)) return std::nullopt;
  return problem.plan(problem.one_block(), /*keep_last=*/true, Expansion::kAsPrinted);
}

std::int64_t largest_stage(const ChainProblem& chain) {
  std::int64_t largest = 0;
  for (const RotorStage& stage : chain.rotor_stages()) largest = std::max(largest, stage.saved_bytes);
  return largest;
}

Formula states_formula(const ChainProblem& chain, std::span<const ChainAction> actions, std::uint32_t states) {
  const std::int64_t bytes = static_cast<std::int64_t>(states) * largest_stage(chain);
  return {.overhead = chain.rerun_time(actions), .peak_bytes = bytes, .cached_bytes = bytes, .blocks = states};
}

// ---- revolve

void propose_revolve(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  const ChainProblem chain(problem);
  chain.describe(solution);
  if (chain.stages() == 0) return;
  for (const std::int64_t states :
       budget_grid(1, chain.stages(), std::min<std::size_t>(chain.stages(), knobs_of(options).candidates))) {
    if (asked_to_stop(options)) return stop(solution, "stopped before all numbers of states were tried");
    const auto actions = revolve_schedule(chain.stages(), static_cast<std::uint32_t>(states));
    front.add(chain.runs(actions), states_formula(chain, actions, static_cast<std::uint32_t>(states)));
  }
}

std::optional<Plan> revolve_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const ChainProblem chain(problem);
  chain.describe(solution);
  if (chain.stages() == 0) return nothing_to_plan(problem, options, solution);
  const std::int64_t state_bytes = std::max<std::int64_t>(1, largest_stage(chain));
  const std::int64_t fitting = options.budget_bytes ? *options.budget_bytes / state_bytes : 1;
  const auto states = static_cast<std::uint32_t>(std::clamp<std::int64_t>(fitting, 1, chain.stages()));
  const auto actions = revolve_schedule(chain.stages(), states);
  const bool fits = accept_by_formula(states_formula(chain, actions, states), options, solution);
  solution.smallest_budget_bytes = state_bytes;
  if (!fits) return std::nullopt;
  return problem.plan(chain.runs(actions));
}

// ---- rotor

constexpr std::uint32_t kMostRotorStages = 600;  // the table has stages^2 / 2 * units entries

Formula rotor_formula(const ChainProblem& chain, const RotorAnswer& answer, std::int64_t budget) {
  std::size_t kept = 0;
  for (const ChainAction& action : answer.actions) kept += action.kind == ChainAction::Kind::kForwardKeepInput ? 1 : 0;
  return {.overhead = chain.rerun_time(answer.actions), .peak_bytes = budget, .cached_bytes = 0, .blocks = kept + 1};
}

std::int64_t everything(const ChainProblem& chain) {
  std::int64_t bytes = 0;
  for (const RotorStage& stage : chain.rotor_stages()) {
    bytes += stage.saved_bytes + stage.gradient_bytes + stage.forward_overhead_bytes + stage.backward_overhead_bytes;
  }
  return bytes;
}

void propose_rotor(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  const ChainProblem chain(problem);
  if (!chain.describe(solution, kMostRotorStages) || chain.stages() == 0) return;
  // A table is as fine as its units, so the lower half of the memory gets tables of its own.
  for (std::int64_t top = everything(chain), halvings = 0; halvings < 6; top /= 2, ++halvings) {
    if (asked_to_stop(options)) return stop(solution, "stopped before all tables were made");
    const RotorTable table(chain.rotor_stages(), /*input_bytes=*/0, top);
    for (const std::int64_t budget : budget_grid(std::max<std::int64_t>(1, top / 2), top,
                                                 std::max<std::size_t>(2, knobs_of(options).candidates / 4))) {
      const auto answer = table.solve(budget);
      if (answer) front.add(chain.runs(answer->actions), rotor_formula(chain, *answer, budget));
    }
  }
}

// Memory is counted in units of the budget, so a smaller budget gives another count: the budget is lowered as long as
// there is still a plan.
std::int64_t least_rotor_budget(const ChainProblem& chain) {
  std::int64_t budget = everything(chain);
  while (true) {
    const auto least = RotorTable(chain.rotor_stages(), /*input_bytes=*/0, budget).least_memory_bytes();
    if (!least || *least >= budget) return budget;
    if (!rotor(chain.rotor_stages(), /*input_bytes=*/0, *least)) return budget;
    budget = *least;
  }
}

std::optional<Plan> rotor_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const ChainProblem chain(problem);
  if (!chain.describe(solution, kMostRotorStages)) return std::nullopt;
  if (chain.stages() == 0) return nothing_to_plan(problem, options, solution);
  solution.budget_bytes = options.budget_bytes ? *options.budget_bytes : least_rotor_budget(chain);
  const RotorTable table(chain.rotor_stages(), /*input_bytes=*/0, solution.budget_bytes);
  const auto answer = table.solve(solution.budget_bytes);
  if (!answer) {
    solution.status = Status::kInfeasible;
    solution.smallest_budget_bytes = least_rotor_budget(chain);
    return std::nullopt;
  }
  solution.smallest_budget_bytes = options.budget_bytes ? 0 : solution.budget_bytes;
  solution.formula = rotor_formula(chain, *answer, solution.budget_bytes);
  solution.status = Status::kOptimal;
  return problem.plan(chain.runs(answer->actions));
}

}  // namespace

const Planner kRevolvePlanner{.name = "revolve", .propose = propose_revolve, .as_printed = revolve_as_printed};
const Planner kRotorPlanner{.name = "rotor", .propose = propose_rotor, .as_printed = rotor_as_printed};

}  // namespace reprise::detail
