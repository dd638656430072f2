// No recomputation, frees by liveness: what every other planner is compared with.
#include "solve/planner.h"

namespace reprise::detail {
namespace {

// Nothing beyond the step as it is, which solve() always considers.
void propose(const Problem& /*problem*/, const SolveOptions& /*options*/, const Propose& /*propose*/,
             Solution& /*solution*/) {}

std::optional<Blocks> as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  return accept_by_formula(problem.one_block(), problem, options, /*keep_last=*/true, solution);
}

}  // namespace

const Planner kNonePlanner{.name = "none", .propose = propose, .as_printed = as_printed};

}  // namespace reprise::detail
