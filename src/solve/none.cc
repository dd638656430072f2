// No recomputation, frees by liveness: what every other planner is compared with.
#include "solve/lower_sets/formula.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

// Proposes nothing beyond the step as it is, which solve() always considers.
void propose(const Problem& /*problem*/, const SolveOptions& /*options*/, Front& /*front*/, Solution& /*solution*/) {}

std::optional<Plan> as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const Blocks blocks = problem.one_block();
  if (!accept_by_formula(formula(problem.view(), blocks, /*keep_last=*/true), options, solution)) return std::nullopt;
  return problem.plan(blocks, /*keep_last=*/true, Expansion::kAsPrinted);
}

}  // namespace

const Planner kNonePlanner{.name = "none", .propose = propose, .as_printed = as_printed};

}  // namespace reprise::detail
