// No recomputation, frees by liveness: what every other planner is compared with.
#include "solve/planner.h"

namespace reprise::detail {
namespace {

void propose(const Problem& problem, const SolveOptions& /*options*/, const Propose& propose, Solution& solution) {
  solution.stats.nodes = problem.view().num_nodes();
  propose(problem.one_block());
}

std::optional<Blocks> as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  solution.stats.nodes = problem.view().num_nodes();
  return accept_by_formula(problem.one_block(), problem, options, /*keep_last=*/true, solution);
}

}  // namespace

const Planner kNonePlanner{.name = "none", .recomputes = false, .propose = propose, .as_printed = as_printed};

}  // namespace reprise::detail
