#include "reprise/solve.h"

#include <algorithm>
#include <array>

#include "check.h"
#include "reprise/validate.h"
#include "solve/formula.h"
#include "solve/front.h"
#include "solve/planner.h"

namespace reprise {
namespace detail {

std::optional<Blocks> accept_by_formula(Blocks blocks, const Problem& problem, const SolveOptions& options,
                                        bool keep_last, Solution& solution) {
  const Formula found = formula(problem.view(), blocks, keep_last);
  solution.smallest_budget_bytes = found.peak_bytes;
  solution.budget_bytes = options.budget_bytes.value_or(found.peak_bytes);
  if (solution.budget_bytes < found.peak_bytes) {
    solution.status = Status::kInfeasible;
    return std::nullopt;
  }
  solution.formula = found;
  solution.status = Status::kFeasible;
  return blocks;
}

}  // namespace detail

namespace {

using detail::Expansion;
using detail::Front;
using detail::Planner;
using detail::Problem;

const std::array kPlanners{&detail::kNonePlanner, &detail::kChenPlanner, &detail::kLowerSetsPlanner,
                           &detail::kLowerSetsApproxPlanner};

const Planner& planner_named(std::string_view name) {
  for (const Planner* planner : kPlanners) {
    if (planner->name == name) return *planner;
  }
  std::string known;
  for (const std::string_view n : planner_names()) known += (known.empty() ? "" : ", ") + std::string(n);
  throw InputError("unknown planner '" + std::string(name) + "'; there are " + known);
}

// Nothing leaves the library unchecked.
void attach(Plan plan, const Problem& problem, Solution& solution) {
  const auto violation = validate(problem.step(), plan);
  if (violation) throw InternalError("planner " + solution.planner + " made an illegal plan: " + violation->message);
  solution.simulation = simulate(problem.step(), plan);
  solution.plan = std::move(plan);
}

void attach(const Front::Point& point, const Problem& problem, Solution& solution) {
  attach(problem.plan(point.blocks, point.keep_last, Expansion::kLean), problem, solution);
  solution.formula = detail::formula(problem.view(), point.blocks, point.keep_last);
}

Solution blank_solution(const Planner& planner, const Problem& problem) {
  Solution solution{.planner = std::string(planner.name)};
  solution.stats.nodes = problem.view().num_nodes();
  return solution;
}

Solution solve_as_printed(const Planner& planner, const Problem& problem, const SolveOptions& options) {
  Solution solution = blank_solution(planner, problem);
  const std::optional<detail::Blocks> blocks = planner.as_printed(problem, options, solution);
  const bool none = planner.name == detail::kNonePlanner.name;
  if (blocks) attach(problem.plan(*blocks, options.keep_last || none, Expansion::kAsPrinted), problem, solution);
  return solution;
}

// Fills the front. A planner that was stopped leaves what it found until then, and the solution says so.
Solution fill(Front& front, const Planner& planner, const Problem& problem, const SolveOptions& options) {
  Solution solution = blank_solution(planner, problem);
  solution.status = Status::kFeasible;
  planner.propose(
      problem, options, [&](const detail::Blocks& blocks) { front.add(blocks); }, solution);
  return solution;
}

// Whether the step without recomputation fits: then it cannot be beaten.
bool fits_as_it_is(const Front& front, const SolveOptions& options) {
  const Front::Point* plain = front.fastest(options.budget_bytes.value_or(-1));
  return plain != nullptr && plain->simulation.recompute_ns == 0;
}

Solution solve_simulated(const Planner& planner, const Problem& problem, const SolveOptions& options) {
  Front front(problem);
  front.add_plain();
  Solution solution = blank_solution(planner, problem);
  if (fits_as_it_is(front, options)) {
    solution.status = Status::kOptimal;
  } else {
    solution = fill(front, planner, problem, options);
    solution.smallest_budget_bytes = front.points().begin()->first;
  }
  solution.stats.candidates = front.simulated();
  solution.budget_bytes = options.budget_bytes.value_or(solution.smallest_budget_bytes);
  const Front::Point* best = front.fastest(solution.budget_bytes);
  if (best != nullptr) {
    attach(*best, problem, solution);
  } else if (solution.status != Status::kStopped) {
    solution.status = Status::kInfeasible;
  }
  return solution;
}

void check_options(const SolveOptions& options) {
  if (options.budget_bytes && *options.budget_bytes < 0) {
    throw InputError("budget_bytes is negative: " + std::to_string(*options.budget_bytes));
  }
  if (options.candidates == 0) throw InputError("candidates must be at least 1");
}

}  // namespace

Solution solve(const Graph& graph, const SolveOptions& options) {
  const Planner& planner = planner_named(options.planner);
  check_options(options);
  const Problem problem(graph);
  return options.judge == Judge::kFormula ? solve_as_printed(planner, problem, options)
                                          : solve_simulated(planner, problem, options);
}

Curve curve(const Graph& graph, const SolveOptions& options) {
  const Planner& planner = planner_named(options.planner);
  check_options(options);
  const Problem problem(graph);
  Front front(problem);
  front.add_plain();
  Solution base = fill(front, planner, problem, options);
  base.stats.candidates = front.simulated();
  Curve result{.points = {}, .stopped = base.status == Status::kStopped, .message = base.message};
  for (const auto& [peak, point] : front.points()) {
    Solution solution = base;
    solution.status = Status::kFeasible;
    solution.budget_bytes = peak;
    solution.smallest_budget_bytes = front.points().begin()->first;
    attach(point, problem, solution);
    result.points.push_back(std::move(solution));
  }
  return result;
}

std::vector<std::string_view> planner_names() {
  std::vector<std::string_view> names;
  for (const Planner* planner : kPlanners) names.push_back(planner->name);
  return names;
}

}  // namespace reprise
