// `auto`: a label per value of the op-level step, and the simulator as the only judge.
//
//   1. prices     cuts at a grid of prices (price_search.h), again with cross sections of forward kept (prefix_cuts.h)
//   2. planners   the candidates of all other planners, and the labels that can be read off their plans
//   3. aims       cuts with prices adjusted to the budget
//   4. search     small changes of labels at the budget (local_search.h)
//
// Everything found goes into one pool of choices that no other beats. Work is counted, and the order of what is done
// does not depend on the limit: more work never gives a worse plan. Without a budget, the same is done for a ladder of
// budgets, in rounds that each give every rung twice the work of the round before. So it is for small steps at any
// budget.
//
// docs/algorithms/auto.md tells it at length. Tested by tests/unit/solve/auto and tests/property/auto_test.cc.
#include <algorithm>
#include <array>
#include <optional>

#include "solve/auto/evaluator.h"
#include "solve/auto/local_search.h"
#include "solve/auto/pool.h"
#include "solve/auto/prefix_cuts.h"
#include "solve/auto/price_search.h"
#include "solve/auto/step_model.h"
#include "solve/planner.h"

namespace reprise::detail {
namespace {

constexpr std::array kOthers{&kChenPlanner,  &kChainStaticPlanner,     &kFengHuangPlanner, &kRevolvePlanner,
                             &kRotorPlanner, &kLowerSetsApproxPlanner, &kChainPlanner,     &kLowerSetsPlanner};

// What can be read off a plan: ops run once are kept, those run twice held, others discarded.
Choice choice_of(const StepModel& model, const Plan& plan) {
  Choice choice{.labels = std::vector<Label>(model.num_values(), Label::kKeep), .order = {}};
  std::vector<std::uint32_t> runs(model.num_ops(), 0);
  for (const Step& step : plan.steps) {
    if (step.is_free()) continue;
    const auto op = static_cast<std::uint32_t>(index(step.op()));
    if (runs[op]++ == 0 && op > model.caller) choice.order.push_back(op);
  }
  for (const std::uint32_t v : model.droppable_values) {
    const std::uint32_t again = runs[model.producer[v]];
    if (again > 1) choice.labels[v] = again == 2 ? Label::kHold : Label::kDiscard;
  }
  return choice;
}

class AutoSearch {
 public:
  AutoSearch(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution)
      : problem_(problem),
        options_(options),
        front_(front),
        solution_(solution),
        model_(problem.step()),
        evaluator_(model_),
        prices_(model_, evaluator_, pool_, model_.captured_order, [this] { return out_of_work(); }),
        local_(model_, evaluator_, pool_, [this] { return out_of_work(); }) {}

  void run() {
    offer(plain_choice(model_));
    plain_bytes_ = pool_.entries().begin()->first;
    if (options_.techniques.cuts) prices_.grid({}, kHeights);
    const PrefixCuts prefixes(model_);
    if (options_.techniques.prefix_cuts) try_prefixes(prefixes);
    if (options_.techniques.planners) try_planners();
    const std::vector<std::int64_t> budgets = aims_at_budget() ? std::vector{*options_.budget_bytes} : ladder();
    if (options_.techniques.aimed_prices) aim(prefixes, budgets);
    if (options_.techniques.local_search) search(budgets);
    hand_over();
    if (!stopped_ && aims_at_budget() && front_.fastest(*options_.budget_bytes) == nullptr) return search_all();
    if (stopped_) stop(solution_, "stopped before the search was done; the plan is the best so far");
  }

 private:
  static constexpr std::size_t kHeights = 30;
  static constexpr std::size_t kPrefixHeights = 16;
  static constexpr std::array<std::uint32_t, 14> kStretches{2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48};

  bool out_of_work() {
    if (!stopped_ && asked_to_stop(options_)) stopped_ = true;
    return stopped_ || work() > std::min(options_.work, slice_end_);
  }
  [[nodiscard]] std::size_t work() const { return evaluator_.work() + prices_.work(); }

  // A small step has its whole curve searched whatever the budget, which then only selects.
  [[nodiscard]] bool aims_at_budget() const {
    constexpr std::uint32_t kSmallStep = 80;
    return options_.budget_bytes && model_.num_ops() > kSmallStep;
  }

  void offer(const Choice& choice) { pool_.offer(evaluator_.evaluate(choice), choice); }

  void try_prefixes(const PrefixCuts& prefixes) {
    for (const std::uint32_t stretches : kStretches) {
      if (stretches > model_.caller || out_of_work()) return;
      prices_.grid(prefixes.kept(stretches), kPrefixHeights);
    }
  }

  // Exact methods only where they are quick; the others with fewer candidates the larger the step.
  void try_planners() {
    constexpr std::size_t kSmall = 200;
    constexpr std::size_t kMedium = 2'000;
    const std::size_t nodes = problem_.view().num_nodes();
    SolveOptions options = options_;
    if (nodes > kSmall) options.candidates = std::max<std::size_t>(1, options.candidates / 6);
    options.max_lower_sets = std::min<std::size_t>(options.max_lower_sets, 1'000);
    for (const Planner* planner : kOthers) {
      const bool exact = planner == &kLowerSetsPlanner || planner == &kChainPlanner;
      if (out_of_work() || nodes > kMedium || (exact && nodes > kSmall)) break;
      Solution ignored{.status = Status::kFeasible};
      planner->propose(problem_, options, front_, ignored);
      solution_.stats.lower_sets = std::max(solution_.stats.lower_sets, ignored.stats.lower_sets);
      solution_.stats.labels += ignored.stats.labels;
    }
    for (const auto& [peak, point] : front_.points()) {
      if (out_of_work()) return;
      offer(choice_of(model_, point.plan));
    }
  }

  // Budgets from just below the peak without recomputation to the least peak known.
  [[nodiscard]] std::vector<std::int64_t> ladder() const {
    constexpr std::int64_t kRungs = 24;
    const std::int64_t least = pool_.entries().begin()->first;
    std::vector<std::int64_t> budgets;
    for (std::int64_t i = 1; i <= kRungs; ++i) {
      budgets.push_back(plain_bytes_ - (plain_bytes_ - least) / kRungs * i);
    }
    return budgets;
  }

  void aim(const PrefixCuts& prefixes, const std::vector<std::int64_t>& budgets) {
    constexpr std::size_t kRounds = 30;
    for (const std::int64_t budget : budgets) prices_.aim(budget, {}, kRounds);
    for (const std::uint32_t stretches : {4U, 8U, 16U, 32U}) {
      const std::vector<std::uint8_t> kept = prefixes.kept(stretches);
      for (const std::int64_t budget : budgets) {
        if (budget < (plain_bytes_ - model_.start_bytes) / 2 + model_.start_bytes) prices_.aim(budget, kept, kRounds);
      }
    }
  }

  // Nothing fits: then what is found without a budget must not fit either, and names the smallest that would.
  void search_all() {
    SolveOptions all_budgets = options_;
    all_budgets.budget_bytes.reset();
    AutoSearch(problem_, all_budgets, front_, solution_).run();
  }

  void search(const std::vector<std::int64_t>& budgets) {
    if (budgets.size() == 1) return local_.improve(budgets.front());
    std::size_t before = 0;
    for (std::size_t slice = kFirstSlice; before != pool_.accepted() && !out_of_work(); slice *= 2) {
      before = pool_.accepted();
      for (const std::int64_t budget : budgets) {
        slice_end_ = work() + slice;
        local_.improve(budget);
        slice_end_ = kNoEnd;
      }
    }
  }

  // The best choices as plans. The front simulates them once more.
  void hand_over() {
    constexpr std::size_t kMost = 256;
    constexpr int kSpare = 4;
    const auto add = [&](const Choice& choice) {
      if (evaluator_.evaluate(choice) != Cost{}) front_.add(evaluator_.runs(), std::nullopt);
    };
    const auto& entries = pool_.entries();
    add(entries.begin()->second.choice);
    if (aims_at_budget()) {
      auto it = entries.upper_bound(*options_.budget_bytes);
      for (int i = 0; i < kSpare && it != entries.begin(); ++i) add((--it)->second.choice);
      return;
    }
    std::size_t i = 0;
    std::size_t done = 0;
    for (const auto& [peak, entry] : entries) {
      if (i++ * kMost < done * entries.size()) continue;
      ++done;
      add(entry.choice);
    }
  }

  static constexpr std::size_t kNoEnd = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kFirstSlice = 1'000'000;

  const Problem& problem_;
  const SolveOptions& options_;
  Front& front_;
  Solution& solution_;
  StepModel model_;
  Evaluator evaluator_;
  Pool pool_;
  PriceSearch prices_;
  LocalSearch local_;
  std::int64_t plain_bytes_ = 0;
  std::size_t slice_end_ = kNoEnd;
  bool stopped_ = false;
};

void propose(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  AutoSearch(problem, options, front, solution).run();
}

// There is no formula of its own: the simulated peak takes its place.
std::optional<Plan> as_printed(const Problem& problem, const SolveOptions& options, Solution& solution) {
  Front front(problem);
  front.add_plain();
  solution.status = Status::kFeasible;
  propose(problem, options, front, solution);
  const std::int64_t least = front.points().begin()->first;
  const Front::Point* best = front.fastest(options.budget_bytes.value_or(least));
  const Simulation& found = (best != nullptr ? *best : front.points().begin()->second).simulation;
  const Formula formula{.overhead = found.recompute_ns, .peak_bytes = found.peak_bytes, .cached_bytes = 0, .blocks = 0};
  if (!accept_by_formula(formula, options, solution)) return std::nullopt;
  return best->plan;
}

}  // namespace

const Planner kAutoPlanner{.name = "auto", .propose = propose, .as_printed = as_printed};

}  // namespace reprise::detail
