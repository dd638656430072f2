// Chen et al.'s sqrt(n) segments, generalised to graphs as Kusumoto et al. ran it for comparison.
//
// Where one node carries everything across a cut, the view can be divided: candidates are the lower sets with a single
// boundary node, {} and V. Walking through them by size, a cut is made whenever another 1/s of all bytes has passed,
// s = floor(sqrt(number of candidates)). On a chain of six equal nodes (7 candidates, s = 2, a cut after more than
// three): 1 2 3 4 | 5 6.
//
// In a view with one sink such a set is a node with its ancestors, none of which feeds anything else; only these are
// looked at (cut_chain.h). No budget enters; judged by the simulator, many s are tried, and so are the paper's own
// forms for chains (chain/chen_chain.h): uniform, balanced by size with its search over budgets, recursive. O(V^2).
//
// Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost", 2016; DAG form: Kusumoto et al., NeurIPS
// 2019, as in their program. Tested by tests/golden (their table to the byte).
#include <algorithm>
#include <cmath>

#include "papers/cut_chain.h"
#include "solve/chain/chain_problem.h"
#include "solve/chain/chen_chain.h"
#include "solve/lower_sets/formula.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {
namespace {

// Cuts after each 1/segments of all bytes.
Blocks equal_segments(const CutChain& chain, std::int64_t total_bytes, std::int64_t segments) {
  const std::int64_t share = total_bytes / segments;
  std::int64_t threshold = share;
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> ends;
  for (std::uint32_t s = 0; s + 1 < chain.num_stages(); ++s) {
    bytes += chain.bytes[s];
    if (bytes <= threshold) continue;
    ends.push_back(s);
    if (share > 0) threshold += (bytes - threshold + share - 1) / share * share;
  }
  return chain.blocks(ends);
}

// The empty set, the cuts, and V.
std::size_t num_candidates(const CutChain& chain) { return chain.num_stages() + 1; }

// Numbers of segments to try: all, or where that is too many, about `count` with the same ratio between neighbours.
std::vector<std::int64_t> segment_numbers(std::size_t candidates, std::size_t count) {
  const double ratio =
      candidates <= count ? 1.0 : std::pow(static_cast<double>(candidates), 1.0 / static_cast<double>(count));
  std::vector<std::int64_t> numbers;
  const auto most = static_cast<std::int64_t>(candidates);
  for (std::int64_t s = 1; s <= most;
       s = std::max(s + 1, static_cast<std::int64_t>(std::ceil(static_cast<double>(s) * ratio)))) {
    numbers.push_back(s);
  }
  return numbers;
}

// The forms for chains, with the stages as layers.
void propose_chain_forms(const ChainProblem& chain, Front& front) {
  if (chain.stages() == 0) return;
  front.add(chain.blocks(chen_uniform(chain.stages())));
  front.add(chain.blocks(chen_search(chain.sizes()).checkpoints));
  const std::vector<ChainAction> actions = chen_recursive(chain.stages());
  front.add(chain.runs(actions), std::nullopt);
}

void propose(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  const ChainProblem chain(problem);
  chain.describe(solution);
  propose_chain_forms(chain, front);
  const std::vector<std::int64_t> numbers =
      segment_numbers(num_candidates(chain.chain()), knobs_of(options).candidates);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (asked_to_stop(options)) {
      return stop(solution, "stopped after " + std::to_string(i) + " of " + std::to_string(numbers.size()) +
                                " numbers of segments");
    }
    front.add(equal_segments(chain.chain(), problem.view().total_bytes(), numbers[i]));
    if (options.progress) options.progress(i + 1, numbers.size());
  }
}

std::optional<Plan> as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  const CutChain chain = cut_chain(problem.view());
  solution.stats.lower_sets = num_candidates(chain);
  const auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(num_candidates(chain))));
  const Blocks blocks = equal_segments(chain, problem.view().total_bytes(), std::max<std::int64_t>(1, root));
  if (!accept_by_formula(formula(problem.view(), blocks, options.keep_last), options, solution)) return std::nullopt;
  return problem.plan(blocks, options.keep_last, Expansion::kAsPrinted);
}

}  // namespace

const Planner kChenPlanner{.name = "chen", .propose = propose, .as_printed = as_printed};

}  // namespace reprise::detail
