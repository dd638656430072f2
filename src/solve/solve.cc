#include "reprise/solve.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "check.h"
#include "reprise/validate.h"
#include "solve/arena_search.h"
#include "solve/auto/evaluator.h"
#include "solve/auto/lower_bound.h"
#include "solve/carry/budgets.h"
#include "solve/carry/carry.h"
#include "solve/front.h"
#include "solve/overlap/joined.h"
#include "solve/overlap/overlap_search.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise {
namespace detail {

bool accept_by_formula(const Formula& formula, const SolveOptions& options, Solution& solution) {
  solution.smallest_budget_bytes = formula.peak_bytes;
  solution.budget_bytes = options.budget_bytes.value_or(formula.peak_bytes);
  const bool fits = formula.peak_bytes <= solution.budget_bytes;
  solution.status = fits ? Status::kFeasible : Status::kInfeasible;
  if (fits) solution.formula = formula;
  return fits;
}

}  // namespace detail

namespace {

using detail::Front;
using detail::Planner;
using detail::Problem;

const std::array kPlanners{
    &detail::kAutoPlanner,      &detail::kNonePlanner,  &detail::kChenPlanner,        &detail::kLowerSetsApproxPlanner,
    &detail::kLowerSetsPlanner, &detail::kChainPlanner, &detail::kChainStaticPlanner, &detail::kFengHuangPlanner,
    &detail::kRevolvePlanner,   &detail::kRotorPlanner, &detail::kOnlinePlanner};

const Planner& planner_named(std::string_view name) {
  for (const Planner* planner : kPlanners) {
    if (planner->name == name) return *planner;
  }
  std::string known;
  for (const std::string_view n : planner_names()) known += (known.empty() ? "" : ", ") + std::string(n);
  throw InputError("unknown planner '" + std::string(name) + "'; the planners are " + known);
}

// Checks a plan; every plan that leaves the library goes through here.
void check(const Plan& plan, const Problem& problem, const Solution& solution) {
  const auto violation = validate(problem.step(), plan);
  if (violation) throw InternalError("planner " + solution.planner + " made an illegal plan: " + violation->message);
}

void attach(Plan plan, const Problem& problem, Solution& solution) {
  check(plan, problem, solution);
  solution.simulation = simulate(problem.step(), problem.costs(), plan);
  solution.plan = std::move(plan);
}

void attach(const Front::Point& point, const Problem& problem, Solution& solution) {
  attach(point.plan, problem, solution);
  if (problem.step().num_communicators() == 0) solution.formula = point.formula;  // formulas know none
}

// The lower bounds beside plans of `auto`, for any number of budgets and orders of backward on one step.
class Certificate {
 public:
  Certificate(const Planner& planner, const Problem& problem, const SolveOptions& options) {
    if (&planner != &detail::kAutoPlanner || !knobs_of(options).techniques.bound) return;
    // A collective that is hidden costs nothing, and may have started long before.
    if (problem.step().num_communicators() > 0) {
      joined_.emplace(problem.step(), problem.costs(), /*price=*/0, /*at_wait=*/false);
    }
    model_.emplace(joined_ ? joined_->graph() : problem.step(), joined_ ? joined_->costs() : problem.costs());
    communication_ns_ = most_communication_ns(problem.step(), problem.costs());
    work_ = detail::asked_to_stop(options) ? 0 : knobs_of(options).bound_work;
    if (options.host_budget_bytes > 0) host_budget_bytes_ = options.host_budget_bytes;
  }

  // Notes an order that will be asked for, so that each order gets its share of the work.
  void expect(const Plan& plan) {
    if (model_) bounds_.try_emplace(order_of(plan));
  }

  void attach(Solution& solution) {
    if (!model_) return;
    const detail::LowerBound& bound = bound_for(order_of(solution.plan));
    solution.floor_bytes = bound.floor_bytes();
    solution.reordered = order_of(solution.plan) != model_->captured_order;
    if (solution.budget_bytes < solution.floor_bytes) return;
    solution.lower_bound_ns = host_budget_bytes_ > 0
                                  ? bound.time_ns(solution.budget_bytes, *model_->costs.link, host_budget_bytes_)
                                  : std::max(bound.time_ns(solution.budget_bytes), communication_ns_);
  }

 private:
  using Order = std::vector<OpId>;

  // The order in which backward ops first run; the captured order if there is no plan.
  [[nodiscard]] Order order_of(const Plan& plan) const {
    Order order;
    detail::ByOp<std::uint8_t> done(model_->num_ops(), 0);
    for (const Action& action : plan.actions) {
      if (!action.computes()) continue;
      const OpId op = joined_ ? joined_->joined(action.op()) : action.op();
      if (op == kNoOp || std::exchange(done[op], 1) != 0) continue;
      if (op > model_->caller) order.push_back(op);
    }
    return order.empty() ? model_->captured_order : order;
  }

  // The communicator with the most to do takes at least this, for collectives that some op needs.
  [[nodiscard]] static std::int64_t most_communication_ns(const Graph& graph, const Costs& costs) {
    std::vector<std::int64_t> by_stream(std::size_t{graph.num_communicators()} + 1, 0);
    for (OpId op{0}; index(op) < graph.num_ops(); ++op) {
      if (graph.is_start(op) && graph.once(op)) by_stream[graph.stream(op)] += costs.time_ns[index(op)];
    }
    return std::ranges::max(by_stream);
  }

  const detail::LowerBound& bound_for(const Order& order) {
    std::optional<detail::LowerBound>& bound = bounds_[order];
    if (!bound) {
      detail::Evaluator evaluator(*model_);
      (void)evaluator.evaluate({.labels = plain_choice(*model_).labels, .order = order});
      bound.emplace(*model_, order, evaluator.profile(), work_ / bounds_.size(), host_budget_bytes_ > 0);
    }
    return *bound;
  }

  std::optional<detail::JoinedStep> joined_;  // of a step with communicators
  std::optional<detail::StepModel> model_;
  std::int64_t communication_ns_ = 0;
  std::size_t work_ = 0;
  std::int64_t host_budget_bytes_ = 0;
  std::map<Order, std::optional<detail::LowerBound>> bounds_;
};

Solution blank_solution(const Planner& planner, const Problem& problem) {
  Solution solution{.planner = std::string(planner.name)};
  solution.stats.nodes = problem.view().num_nodes();
  return solution;
}

Solution solve_as_printed(const Planner& planner, const Problem& problem, const SolveOptions& options) {
  Solution solution = blank_solution(planner, problem);
  std::optional<Plan> plan = planner.as_printed(problem, options, solution);
  if (plan) attach(std::move(*plan), problem, solution);
  return solution;
}

// Fills the front. A planner that was stopped leaves what it found until then, and the solution says so.
Solution fill(Front& front, const Planner& planner, const Problem& problem, const SolveOptions& options) {
  Solution solution = blank_solution(planner, problem);
  solution.status = Status::kFeasible;
  if (problem.step().num_communicators() > 0) {
    detail::propose_overlapping(planner, problem, options, front, solution);
  } else {
    planner.propose(problem, options, front, solution);
  }
  if (options.host_budget_bytes > 0 && options.budget_bytes) {
    detail::CarrySearch(problem, options, front).run(/*searches=*/&planner == &detail::kAutoPlanner);
  }
  return solution;
}

// Whether the step without recomputation fits, and waits for no communicator; then no plan is better.
bool fits_as_it_is(const Front& front, const SolveOptions& options) {
  const Front::Point* plain = front.fastest(options.budget_bytes.value_or(-1));
  return plain != nullptr && plain->simulation.recompute_ns == 0 && plain->simulation.exposed_ns == 0;
}

// The fastest plan whose arena was found to fit, or else the fastest.
const Front::Point* best_with_arena(Front& front, const Planner& planner, const Problem& problem,
                                    const SolveOptions& options, Solution& solution) {
  constexpr int kMoreSearches = 2;
  detail::ArenaSearch search(problem, *options.addresses, solution.budget_bytes);
  const Front::Point* best = search.first_that_fits(front, solution.budget_bytes);
  SolveOptions lower = options;
  for (int more = 0; best == nullptr && more < kMoreSearches && search.lower_budget_bytes() > 0; ++more) {
    lower.budget_bytes = search.lower_budget_bytes();
    const Solution again = fill(front, planner, problem, lower);
    solution.stats.candidates = front.simulated();
    best = search.first_that_fits(front, *lower.budget_bytes);
    if (again.status == Status::kStopped) break;
  }
  solution.stats.arenas = search.tried();
  solution.placement = search.placement();
  const Front::Point* fastest = front.fastest(solution.budget_bytes);
  if (best == nullptr) {
    solution.message = "no arena that was tried fits " + std::to_string(solution.budget_bytes) +
                       " bytes; the smallest takes " + std::to_string(search.least_bytes()) +
                       " bytes with what lies outside it";
    return fastest;
  }
  if (best != fastest && solution.status == Status::kOptimal) solution.status = Status::kFeasible;
  return best;
}

// Where no plan without copies fits, the least budget known at which one with copies does. It is found by the very
// search that asking for this budget begins.
void carry_below(Front& front, const Planner& planner, const Problem& problem, const SolveOptions& options,
                 Solution& solution) {
  const bool has_plan = options.budget_bytes && front.fastest(*options.budget_bytes) != nullptr;
  if (options.host_budget_bytes == 0 || has_plan || solution.status == Status::kStopped) return;
  SolveOptions within = options;
  within.budget_bytes = detail::least_carried(problem, options, front, options.budget_bytes.value_or(-1));
  if (!within.budget_bytes) return;
  Front below(problem);
  below.add_plain();
  if (fill(below, planner, problem, within).status == Status::kStopped) return;
  const Front::Point* found = below.fastest(*within.budget_bytes);
  if (found == nullptr) return;
  front.add_carrying(found->plan, options.host_budget_bytes);
  solution.smallest_budget_bytes = *within.budget_bytes;
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
    carry_below(front, planner, problem, options, solution);
  }
  solution.stats.candidates = front.simulated();
  solution.budget_bytes = options.budget_bytes.value_or(solution.smallest_budget_bytes);
  const Front::Point* best = front.fastest(solution.budget_bytes);
  if (best != nullptr) {
    if (options.arena_within_budget) best = best_with_arena(front, planner, problem, options, solution);
    attach(*best, problem, solution);
    if (solution.status == Status::kOptimal && copies(solution.plan)) solution.status = Status::kFeasible;
  } else {
    if (solution.status != Status::kStopped) solution.status = Status::kInfeasible;
    solution.smallest_plan = front.points().begin()->second.plan;
    check(solution.smallest_plan, problem, solution);
  }
  Certificate(planner, problem, options).attach(solution);
  return solution;
}

// What is not planned for steps with communicators.
void check_overlapping(const Graph& graph, const SolveOptions& options) {
  if (graph.num_communicators() == 0) return;
  if (options.judge == Judge::kFormula) {
    throw InputError("the papers' formulas know no communicators, and '" + graph.name() +
                     "' has some; use judge simulated");
  }
  if (options.host_budget_bytes > 0) {
    throw InputError(
        "plans of '" + graph.name() +
        "', which has communicators, cannot store values in the host's memory; leave host_budget_bytes at 0");
  }
}

void check_options(const Graph& graph, const Costs& costs, const SolveOptions& options) {
  check_overlapping(graph, options);
  if (options.budget_bytes && *options.budget_bytes < 0) {
    throw InputError("budget_bytes is negative: " + std::to_string(*options.budget_bytes));
  }
  const bool with_arena = options.addresses && options.budget_bytes && options.judge == Judge::kSimulated;
  if (options.arena_within_budget && !with_arena) {
    throw InputError("arena_within_budget needs addresses, a budget and judge simulated");
  }
  if (options.host_budget_bytes < 0) {
    throw InputError("host_budget_bytes is negative: " + std::to_string(options.host_budget_bytes));
  }
  if (options.host_budget_bytes > 0 && !costs.link) {
    throw InputError("host_budget_bytes needs costs with a link to the host");
  }
  if (knobs_of(options).candidates == 0) throw InputError("candidates must be at least 1");
}

}  // namespace

Solution solve(const Graph& graph, const Costs& costs, const SolveOptions& options) {
  const Planner& planner = planner_named(options.planner);
  check_options(graph, costs, options);
  const Problem problem(graph, costs);
  Solution solution = options.judge == Judge::kFormula ? solve_as_printed(planner, problem, options)
                                                       : solve_simulated(planner, problem, options);
  if (solution.status == Status::kInfeasible) {
    solution.message = "no plan of planner " + solution.planner + " fits " + std::to_string(solution.budget_bytes) +
                       " bytes; the smallest budget known is " + std::to_string(solution.smallest_budget_bytes);
  }
  if (options.addresses && !options.arena_within_budget && !solution.plan.actions.empty()) {
    solution.placement = place(problem.step(), problem.costs(), solution.plan, *options.addresses);
  }
  return solution;
}

std::int64_t lower_bound_ns(const Graph& graph, const Costs& costs, const Plan& plan) {
  const Problem problem(graph, costs);
  const Simulation simulation = simulate(problem.step(), problem.costs(), plan);
  Solution solution{.plan = plan, .simulation = simulation, .budget_bytes = simulation.peak_bytes};
  Certificate(detail::kAutoPlanner, problem, {.host_budget_bytes = simulation.host_peak_bytes}).attach(solution);
  return solution.lower_bound_ns.value_or(0);
}

Curve curve(const Graph& graph, const Costs& costs, const SolveOptions& options) {
  const Planner& planner = planner_named(options.planner);
  SolveOptions all_budgets = options;
  all_budgets.budget_bytes.reset();
  all_budgets.all_budgets = true;
  all_budgets.arena_within_budget = false;
  check_options(graph, costs, all_budgets);
  const Problem problem(graph, costs);
  Front front(problem);
  front.add_plain();
  Solution base = fill(front, planner, problem, all_budgets);
  Curve result{.points = {}, .stopped = base.status == Status::kStopped, .message = base.message};
  if (options.host_budget_bytes > 0 && !detail::carry_along(problem, all_budgets, front)) result.stopped = true;
  base.stats.candidates = front.simulated();
  Certificate certificate(planner, problem, options);
  for (const auto& [peak, point] : front.points()) certificate.expect(point.plan);
  for (const auto& [peak, point] : front.points()) {
    Solution solution = base;
    solution.status = Status::kFeasible;
    solution.budget_bytes = peak;
    solution.smallest_budget_bytes = front.points().begin()->first;
    attach(point, problem, solution);
    certificate.attach(solution);
    result.points.push_back(std::move(solution));
  }
  return result;
}

std::vector<std::string_view> planner_names() {
  std::vector<std::string_view> names;
  names.reserve(kPlanners.size());
  for (const Planner* planner : kPlanners) names.push_back(planner->name);
  return names;
}

}  // namespace reprise
