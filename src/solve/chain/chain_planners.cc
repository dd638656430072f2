// Planners that keep checkpoints of a chain: `chain-static`, `chain` and `feng-huang`.
//
// The step is seen as a chain of stages between single-node cuts (chain_problem.h); a checkpoint set becomes blocks of
// forward nodes and so a plan on the step's own ops. Each planner's objective is its own:
//
//   chain-static  Hong et al.: checkpoints + largest segment; three definitions (chain/static_chain.h)
//   chain         Hong et al.: least peak when checkpoints are freed as backward passes them (chain/dynamic_chain.h),
//   and
//                 with a budget the least recomputation (chain/budget_chain.h)
//   feng-huang    Feng and Huang's linear form: the first definition by shortest paths (chain/feng_huang.h)
//
// Judged by the simulator, all these sets are candidates, and for `chain` also the exact-liveness optimum
// (chain/live_chain.h), least recomputation at a grid of budgets, and the sequences over the cut sets (family_sweep.h),
// which know what lies inside the stages. Tested by tests/oracle and tests/property.
#include <algorithm>

#include "solve/chain/budget_chain.h"
#include "solve/chain/chain_problem.h"
#include "solve/chain/dynamic_chain.h"
#include "solve/chain/feng_huang.h"
#include "solve/chain/static_chain.h"
#include "solve/lower_sets/family_sweep.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {
namespace {

constexpr std::uint32_t kMostStaticStages = 2000;    // O(n^3)
constexpr std::uint32_t kMostBudgetedStages = 2000;  // many partials

std::int64_t last_size(const ChainProblem& chain) { return chain.sizes().back(); }

void add(const ChainProblem& chain, const Checkpoints& checkpoints, Front& front) {
  front.add(chain.blocks(checkpoints));
}

std::optional<Plan> accept(const Problem& problem, const ChainProblem& chain, const Checkpoints& checkpoints,
                           std::int64_t peak_bytes, const SolveOptions& options, Solution& solution) {
  if (!accept_by_formula(chain.formula(checkpoints, peak_bytes), options, solution)) return std::nullopt;
  solution.status = Status::kOptimal;
  return problem.plan(chain.blocks(checkpoints), options.keep_last, Expansion::kAsPrinted);
}

// ---- chain-static

void propose_static(const Problem& problem, const SolveOptions& /*options*/, Front& front, Solution& solution) {
  const ChainProblem chain(problem);
  if (!chain.describe(solution, kMostStaticStages)) return;
  for (const SegmentMemory memory : {SegmentMemory::kChen, SegmentMemory::kLiteral, SegmentMemory::kRepaired}) {
    add(chain, least_static_peak(chain.sizes(), memory).checkpoints, front);
  }
}

std::optional<Plan> static_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const ChainProblem chain(problem);
  if (!chain.describe(solution, kMostStaticStages)) return std::nullopt;
  const ChainAnswer answer = least_static_peak(chain.sizes(), SegmentMemory::kRepaired);
  return accept(problem, chain, answer.checkpoints, answer.peak_bytes, options, solution);
}

// ---- feng-huang

void propose_feng_huang(const Problem& problem, const SolveOptions& /*options*/, Front& front, Solution& solution) {
  const ChainProblem chain(problem);
  if (!chain.describe(solution, kFengHuangMostLayers)) return;
  add(chain, feng_huang(chain.sizes()).checkpoints, front);
}

std::optional<Plan> feng_huang_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const ChainProblem chain(problem);
  if (!chain.describe(solution, kFengHuangMostLayers)) return std::nullopt;
  const ChainAnswer answer = feng_huang(chain.sizes());
  return accept(problem, chain, answer.checkpoints, answer.peak_bytes, options, solution);
}

// ---- chain

// Least recomputation at budgets from the least peak to that of keeping everything.
void propose_budgeted(const ChainProblem& chain, const SolveOptions& options, Front& front) {
  if (chain.stages() > kMostBudgetedStages) return;
  const std::int64_t base = 2 * last_size(chain);
  const std::int64_t low = least_peak(chain.sizes(), base).peak_bytes;
  std::int64_t high = base;
  for (const std::int64_t size : chain.sizes()) high += 2 * size;
  for (const std::int64_t budget : budget_grid(low, std::max(low, high), knobs_of(options).candidates)) {
    if (asked_to_stop(options)) return;
    const auto answer = least_recomputation(chain.sizes(), chain.times(), base, budget);
    if (answer) add(chain, answer->checkpoints, front);
  }
}

void propose_chain(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  const ChainProblem chain(problem);
  if (chain.stages() == 0) return;
  for (const std::int64_t base : {last_size(chain), 2 * last_size(chain)}) {
    add(chain, least_peak(chain.sizes(), base).checkpoints, front);
  }
  add(chain, least_live_peak(chain.layers(), /*input_bytes=*/0, /*input_gradient=*/false).checkpoints, front);
  propose_budgeted(chain, options, front);
  const LowerSetFamily family = chain.cut_sets();
  FamilySearch search(problem, family, options, /*keep_last=*/true);
  sweep_family(search, problem, options, front, solution);
  if (solution.status != Status::kStopped) chain.describe(solution);
}

std::optional<Plan> chain_as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const ChainProblem chain(problem);
  chain.describe(solution);
  const std::int64_t base = 2 * last_size(chain);
  const ChainAnswer least = least_peak(chain.sizes(), base);
  const bool roomy = options.budget_bytes && *options.budget_bytes > least.peak_bytes;
  if (!roomy || chain.stages() > kMostBudgetedStages) {
    return accept(problem, chain, least.checkpoints, least.peak_bytes, options, solution);
  }
  const auto answer = least_recomputation(chain.sizes(), chain.times(), base, *options.budget_bytes);
  const Checkpoints& checkpoints = answer ? answer->checkpoints : least.checkpoints;
  const std::int64_t peak = dynamic_peak(chain.sizes(), checkpoints, base);
  std::optional<Plan> plan = accept(problem, chain, checkpoints, peak, options, solution);
  solution.smallest_budget_bytes = least.peak_bytes;
  return plan;
}

}  // namespace

const Planner kChainStaticPlanner{.name = "chain-static", .propose = propose_static, .as_printed = static_as_printed};
const Planner kChainPlanner{.name = "chain", .propose = propose_chain, .as_printed = chain_as_printed};
const Planner kFengHuangPlanner{
    .name = "feng-huang", .propose = propose_feng_huang, .as_printed = feng_huang_as_printed};

}  // namespace reprise::detail
