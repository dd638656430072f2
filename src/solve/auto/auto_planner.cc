// `auto`: a label per value of the op-level step, and the simulator as the only judge.
//
//   1. sections   cross sections of forward kept, the rest held once it was made again: a plan in milliseconds
//      nesting    cross sections within cross sections, everything else discarded: for the least memory
//   2. prices     cuts at a grid of prices (price_search.h), again with cross sections of forward kept (prefix_cuts.h)
//   3. descent    if nothing fits by then, or the least memory is asked for: runs of the online method, planners, and
//                 search at lower and lower peaks; when that ends, the same from other nestings, which began higher
//   4. aims       cuts with prices adjusted to the budget; again for other orders of backward (backward_order.h)
//   5. planners   the candidates of all other planners, and the labels that can be read off their plans
//   6. search     small changes of labels and order at the budget (local_search.h)
//
// Everything found goes into one pool of choices that no other beats. Work is counted, and the order of what is done
// does not depend on the limit: more work never gives a worse plan. Up to the moment when something fits, it does not
// depend on the budget either, so what a refusal names as the smallest budget has a plan. For a curve, 4 to 6 are done
// for a ladder of budgets, in rounds that each give every rung twice the work of the round before; and so they are for
// small steps at any budget.
//
// docs/algorithms/auto.md explains it in detail. Tested by tests/unit/solve/auto and tests/property/auto_test.cc.
#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "solve/auto/backward_order.h"
#include "solve/auto/evaluator.h"
#include "solve/auto/local_search.h"
#include "solve/auto/pool.h"
#include "solve/auto/prefix_cuts.h"
#include "solve/auto/price_search.h"
#include "solve/auto/step_model.h"
#include "solve/online/online_run.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {
namespace {

constexpr std::array kOthers{&kChenPlanner,  &kChainStaticPlanner,     &kFengHuangPlanner, &kRevolvePlanner,
                             &kRotorPlanner, &kLowerSetsApproxPlanner, &kChainPlanner,     &kLowerSetsPlanner};

class AutoSearch {
 public:
  AutoSearch(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution)
      : problem_(problem),
        options_(options),
        knobs_(knobs_of(options)),
        front_(front),
        solution_(solution),
        model_(problem.step(), problem.costs()),
        evaluator_(model_),
        prices_(model_, evaluator_, pool_, model_.captured_order, [this] { return out_of_work(); }),
        local_(model_, evaluator_, pool_, [this] { return out_of_work(); },
               {.reorder = knobs_.techniques.reordering, .incremental = knobs_.techniques.incremental}) {}

  void run() {
    (void)offer(plain_choice(model_));
    plain_bytes_ = pool_.entries().begin()->first;
    const PrefixCuts prefixes(model_);
    limit_ = options_.work / 2;
    try_sections(prefixes);
    if (knobs_.techniques.nesting) try_nesting(prefixes);
    if (knobs_.techniques.cuts) prices_.grid({}, scaled(kHeights));
    if (knobs_.techniques.prefix_cuts) try_prefixes(prefixes);
    const bool tight = !small() && !fits();
    if (tight) go_down();
    if (small() || options_.all_budgets || fits()) {
      limit_ = aims_at_budget() ? later(options_.work) : later(2 * std::min(options_.work, kNoEnd / 2));
      make_faster(prefixes);
    }
    if (options_.host_budget_bytes > 0 && aims_at_budget()) search_above();
    hand_over();
    if (knobs_.techniques.courses && tight && aims_at_budget()) try_courses_around(*options_.budget_bytes);
    if (knobs_.techniques.planners && in_full()) propose_all();
    if (options_.progress) options_.progress(limit_, limit_);
    if (stopped_) stop(solution_, "stopped before the search was done");
  }

 private:
  static constexpr std::uint32_t kSmallStep = 80;
  static constexpr std::size_t kHeights = 30;
  static constexpr std::size_t kCourses = 24;
  static constexpr std::size_t kRounds = 30;  // of aiming prices
  static constexpr std::size_t kPrefixHeights = 16;
  static constexpr std::array<std::uint32_t, 14> kStretches{2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48};

  bool out_of_work() {
    if (!stopped_ && asked_to_stop(options_)) stopped_ = true;
    if (options_.progress && work() >= next_report_) {
      options_.progress(std::min(work(), limit_), limit_);
      next_report_ = work() + kReportEvery;
    }
    return stopped_ || work() > std::min(limit_, slice_end_);
  }
  // The work done so far and so much more.
  [[nodiscard]] std::size_t later(std::size_t more) const { return work() + std::min(more, kNoEnd - work()); }
  [[nodiscard]] std::size_t work() const { return evaluator_.work() + prices_.work() + local_.work() + other_work_; }

  [[nodiscard]] bool small() const { return model_.num_ops() <= kSmallStep; }
  // For a small step the whole curve is searched at any budget, and the budget then only selects a point.
  [[nodiscard]] bool aims_at_budget() const { return options_.budget_bytes && !small(); }

  [[nodiscard]] bool fits() const {
    return aims_at_budget() && pool_.fastest(*options_.budget_bytes) != pool_.entries().end();
  }

  // Below the least peak known, in rounds of more and more work, until something fits.
  void go_down() {
    if (knobs_.techniques.reordering) {
      for (const std::int64_t least_bytes : {std::int64_t{0}, plain_bytes_ / 100}) {
        offer({.labels = plain_choice(model_).labels, .order = deferring_order(model_, least_bytes)});
      }
    }
    if (knobs_.techniques.courses) try_courses();
    if (knobs_.techniques.planners) try_planners();
    if (!knobs_.techniques.local_search) return;
    for (std::size_t slice = kFirstSlice; !out_of_work() && !fits(); slice *= 2) {
      const std::int64_t before = pool_.entries().begin()->first;
      descend(slice);
      if (pool_.entries().begin()->first == before && slice > kKickSlice) break;
    }
    limit_ = options_.work;
    start_elsewhere();
  }

  // After the descent from the least peaks has ended, descents from other choices that began higher may lead lower.
  void start_elsewhere() {
    constexpr std::size_t kStarts = 16;
    if (knobs_.techniques.nesting) try_nesting(PrefixCuts(model_, PrefixCuts::Measure::kBytes));
    std::ranges::stable_sort(nested_, {}, &std::pair<std::int64_t, Choice>::first);
    for (std::size_t i = 0; i < std::min(kStarts, nested_.size()) && !out_of_work() && !fits(); ++i) {
      Choice choice = nested_[i].second;
      slice_end_ = work() + kKickSlice;
      const bool lower = local_.repair(choice, below_least(kSmallestPart));
      slice_end_ = kNoEnd;
      if (lower) descend(kKickSlice);
    }
  }

  // Something fits, or all budgets are asked for.
  void make_faster(const PrefixCuts& prefixes) {
    const std::vector<std::int64_t> budgets = aims_at_budget() ? std::vector{*options_.budget_bytes} : ladder();
    if (knobs_.techniques.aimed_prices) aim(prices_, prefixes, budgets);
    if (knobs_.techniques.reordering) try_orders(prefixes, budgets);
    if (knobs_.techniques.planners && !aims_at_budget()) try_planners();
    if (knobs_.techniques.local_search) search(budgets);
    if (knobs_.techniques.planners && aims_at_budget() && !in_full()) try_planners();  // they are rarely better
  }

  // Fewer tries the larger the step, but never fewer than a handful.
  [[nodiscard]] std::size_t scaled(std::size_t tries) const {
    constexpr std::size_t kReads = 8'000;
    constexpr std::size_t kLeast = 3;
    return std::clamp(tries * kReads / (model_.op_inputs.size() + 1), kLeast, tries);
  }

  // Returns false if the choice makes too many runs to be useful.
  bool offer(const Choice& choice) {
    const Cost cost = evaluator_.evaluate(choice);
    pool_.offer(cost, choice);
    return cost != Cost{};
  }

  void try_prefixes(const PrefixCuts& prefixes) {
    for (const std::uint32_t stretches : kStretches) {
      if (stretches > index(model_.caller) || out_of_work()) return;
      prices_.grid(prefixes.kept(stretches), scaled(kPrefixHeights));
    }
  }

  // Keeps cross sections; everything between two of them is made again at once and held. This gives a plan for most
  // budgets.
  void try_sections(const PrefixCuts& prefixes) {
    for (std::uint32_t stretches = 2; stretches <= std::min<std::size_t>(512, index(model_.caller)) && !out_of_work();
         stretches += stretches / 2) {
      const ByValue<std::uint8_t> kept = prefixes.kept(stretches);
      Choice choice = plain_choice(model_);
      for (const ValueId v : model_.droppable_values) {
        if (kept[v] == 0 && model_.weight[v] > plain_bytes_ / 20'000) choice.labels[v] = Label::kHold;
      }
      offer(choice);
    }
  }

  // Uses two levels: few cross sections are kept, more are held after they were made again, and everything else is
  // discarded.
  void try_nesting(const PrefixCuts& prefixes) {
    constexpr std::size_t kMostInVain = 100'000;  // ops of steps looked at
    std::size_t in_vain = 0;
    for (const std::uint32_t outer : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U, 24U}) {
      const ByValue<std::uint8_t> kept = prefixes.kept(outer);
      for (const std::uint32_t inner : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U}) {
        if (inner > index(model_.caller) / outer || out_of_work()) break;
        const ByValue<std::uint8_t> held = prefixes.kept(outer * inner);
        Choice choice = plain_choice(model_);
        for (const ValueId v : model_.droppable_values) {
          if (kept[v] == 0) choice.labels[v] = held[v] != 0 ? Label::kHold : Label::kDiscard;
        }
        const Cost cost = evaluator_.evaluate(choice);
        pool_.offer(cost, choice);
        if (cost == Cost{}) in_vain += model_.num_ops();
        if (in_vain > kMostInVain) return;  // it does not help on so deep a step
        nested_.emplace_back(cost.peak_bytes, choice);
        for (const ValueId v : model_.droppable_values) {
          if (model_.weight[v] <= plain_bytes_ / 20'000) choice.labels[v] = Label::kKeep;
        }
        (void)offer(choice);
      }
    }
  }

  // Takes the candidates of another planner for all budgets.
  void propose(const Planner& planner, std::size_t candidates) {
    SolveOptions options = options_;
    options.progress = {};  // the search as a whole reports its progress
    PlannerKnobs turned = knobs_;
    turned.max_lower_sets = std::min<std::size_t>(turned.max_lower_sets, 1'000);
    turned.candidates = candidates;
    options.knobs = knobs(turned);
    Solution ignored{.status = Status::kFeasible};
    planner.propose(problem_, options, front_, ignored);
    solution_.stats.lower_sets = std::max(solution_.stats.lower_sets, ignored.stats.lower_sets);
    solution_.stats.partials += ignored.stats.partials;
  }

  // Slow methods run only on steps where they are quick, or with fewer candidates.
  void try_planners() {
    constexpr std::size_t kSmall = 200;
    constexpr std::size_t kMedium = 700;
    const std::size_t nodes = problem_.view().num_nodes();
    for (const Planner* planner : kOthers) {
      const bool exact = planner == &kLowerSetsPlanner || planner == &kChainPlanner;
      if (out_of_work() || nodes > kMedium || (exact && nodes > kSmall)) break;
      const bool slow = planner == &kLowerSetsApproxPlanner && nodes > kSmall;
      propose(*planner, slow ? std::max<std::size_t>(1, knobs_.candidates / 6) : knobs_.candidates);
    }
    for (const auto& [peak, point] : front_.points()) {
      if (out_of_work()) return;
      offer(choice_of(model_, point.plan));
    }
  }

  // Whether to take everything that the other planners would answer with, so that none of them is ahead at any budget.
  // This is not counted as work, so it is not done if work was limited to less than usual.
  [[nodiscard]] bool in_full() const { return options_.work >= SolveOptions{}.work; }
  void propose_all() {
    constexpr std::size_t kLongChain = 2'000;  // `chain` looks at all pairs of checkpoints: minutes
    for (const Planner* planner : kOthers) {
      if (planner == &kChainPlanner && problem_.view().num_nodes() > kLongChain) continue;
      if (stopped_ || asked_to_stop(options_)) {
        stopped_ = true;
        return;
      }
      propose(*planner, knobs_.candidates);
    }
    if (knobs_.techniques.courses && small()) try_courses();
  }

  // Runs of the online method. Where something fits at first they are never better, so they are not made there.
  void try_courses() {
    constexpr std::size_t kManyOps = 5'000;  // one run takes tenths of a second
    propose(kOnlinePlanner, model_.num_ops() > kManyOps ? scaled(knobs_.candidates) : knobs_.candidates);
  }

  // The same at budgets around the one asked for, if something is within it. The method counts values that a plan frees
  // earlier, so budgets above are of use too.
  void try_courses_around(std::int64_t budget) {
    if (front_.fastest(budget) == nullptr) return;
    const OnlineView step(problem_.step(), problem_.costs());
    const auto tries = static_cast<std::int64_t>(scaled(kCourses));
    for (std::int64_t i = 0; i < tries && !asked_to_stop(options_); ++i) {
      const std::int64_t percent = i % 2 == 0 ? -i / 2 : (i + 1) / 2;
      const OnlineOptions run{.budget_bytes = budget + (budget - model_.start_bytes) / 100 * percent,
                              .rules = knobs_.online};
      for (const OnlineCourse& course : online_courses(step, run)) front_.add(course.runs, std::nullopt);
    }
  }

  // Budgets from just below the peak without recomputation to the least peak known.
  [[nodiscard]] std::vector<std::int64_t> ladder() const {
    const std::int64_t rungs = small() ? 12 : 32;
    const std::int64_t least = pool_.entries().begin()->first;
    std::vector<std::int64_t> budgets;
    for (std::int64_t i = 1; i <= rungs; ++i) {
      budgets.push_back(plain_bytes_ - (plain_bytes_ - least) / rungs * i);
    }
    return budgets;
  }

  // The cuts again, for backward ops in other orders.
  void try_orders(const PrefixCuts& prefixes, const std::vector<std::int64_t>& budgets) {
    std::vector<std::vector<OpId>> seen{model_.captured_order};
    for (const std::int64_t least_bytes : {std::int64_t{0}, plain_bytes_ / 100}) {
      std::vector<OpId> order = deferring_order(model_, least_bytes);
      if (std::ranges::find(seen, order) != seen.end() || out_of_work()) continue;
      PriceSearch prices(model_, evaluator_, pool_, order, [this] { return out_of_work(); });
      offer({.labels = plain_choice(model_).labels, .order = order});
      if (knobs_.techniques.cuts) prices.grid({}, scaled(kHeights));
      if (knobs_.techniques.aimed_prices) aim(prices, prefixes, budgets);
      other_work_ += prices.work();
      seen.push_back(std::move(order));
    }
  }

  void aim(PriceSearch& prices, const PrefixCuts& prefixes, const std::vector<std::int64_t>& budgets) {
    const bool ladder = budgets.size() > 1;
    for (const std::int64_t budget : budgets) {
      prices.aim(budget, {}, scaled(kRounds));
      aim_around(prices, budget, std::span(kAround).first(small() ? 1 : ladder ? 4 : kAround.size()));
    }
    for (const std::uint32_t stretches : {4U, 8U, 16U, 32U}) {
      const ByValue<std::uint8_t> kept = prefixes.kept(stretches);
      for (const std::int64_t budget : budgets) {
        if (budget < (plain_bytes_ - model_.start_bytes) / 2 + model_.start_bytes)
          prices.aim(budget, kept, scaled(kRounds));
      }
    }
  }

  // Budgets a little above and below, by so many percent, with prices that differ a little from value to value.
  static constexpr std::array<int, 12> kAround{-1, 1, -2, 2, -4, 4, 0, -1, 1, -6, 3, 0};
  void aim_around(PriceSearch& prices, std::int64_t budget, std::span<const int> percents) {
    constexpr std::size_t kFewerRounds = 24;
    constexpr double kJitter = 0.04;
    std::uint64_t seed = 0;
    for (const int percent : percents) {
      ++seed;
      prices.jitter(seed, kJitter * static_cast<double>(seed % 4));
      prices.aim(budget + (budget - model_.start_bytes) / 100 * percent, {}, scaled(kFewerRounds));
    }
    prices.jitter(0, 0);
  }

  [[nodiscard]] std::int64_t below_least(std::int64_t part) const {
    const std::int64_t least = pool_.entries().begin()->first;
    return least - std::max<std::int64_t>(1, (least - model_.start_bytes) / part);
  }

  // Searches below the least peak known, by steps that become smaller when they fail.
  void descend(std::size_t slice) {
    for (std::int64_t part = 50; part <= kSmallestPart && !out_of_work() && !fits();) {
      const std::int64_t least = pool_.entries().begin()->first;
      slice_end_ = work() + slice;
      local_.improve(below_least(part));
      slice_end_ = kNoEnd;
      if (pool_.entries().begin()->first == least) part *= 2;
    }
  }

  void search(const std::vector<std::int64_t>& budgets) {
    if (budgets.size() == 1) {
      local_.improve(budgets.front());
      return local_.kick(budgets.front(), kKicks);
    }
    std::size_t before = 0;
    const std::size_t kicks = small() ? kFewKicks : kKicks;
    for (std::size_t slice = kFirstSlice; !out_of_work(); slice *= 2) {
      if (before == pool_.accepted() && slice > kKickSlice) return;
      before = pool_.accepted();
      for (const std::int64_t budget : budgets) {
        slice_end_ = work() + slice;
        local_.improve(budget);
        if (slice >= kKickSlice) local_.kick(budget, kicks);
        slice_end_ = kNoEnd;
      }
      descend(slice);
    }
  }

  // Plans that need more memory than there is, which become plans that store values in the host's memory. With what
  // follows (relieved.h) this is not to take longer than everything before.
  void search_above() {
    constexpr std::int64_t kRungs = 10;
    const std::size_t most = options_.work / 4;
    const std::int64_t budget = *options_.budget_bytes;
    const std::size_t slice = most / kRungs;
    limit_ = later(most);
    for (std::int64_t rung = 1; rung < kRungs; ++rung) {
      const std::int64_t above = budget + (plain_bytes_ - budget) / kRungs * rung;
      slice_end_ = later(slice);
      if (knobs_.techniques.aimed_prices) prices_.aim(above, {}, scaled(kRounds));
      if (knobs_.techniques.local_search) local_.improve(above);
      slice_end_ = kNoEnd;
    }
  }

  // Turns the best choices into plans, which the front simulates once more. Without a budget these are all choices, or
  // an even selection if the step is so large that all would take long; and so are those above the budget if values can
  // be stored in the host's memory.
  void hand_over() {
    constexpr std::size_t kRunsToSimulate = 4'000'000;
    constexpr std::size_t kAtLeast = 128;
    constexpr int kSpare = 4;
    const auto add = [&](const Choice& choice) {
      if (evaluator_.evaluate(choice) != Cost{}) front_.add(evaluator_.runs(), std::nullopt);
    };
    const auto& entries = pool_.entries();
    add(entries.begin()->second.choice);
    auto it = entries.begin();
    if (aims_at_budget()) {
      const auto above = it = entries.upper_bound(*options_.budget_bytes);
      for (int i = 0; i < kSpare && it != entries.begin(); ++i) add((--it)->second.choice);
      if (options_.host_budget_bytes == 0) return;
      it = above;
    }
    const std::size_t most = std::max(kAtLeast, kRunsToSimulate / (model_.num_ops() + 1));
    const auto count = static_cast<std::size_t>(std::distance(it, entries.end()));
    std::size_t done = 0;
    for (std::size_t i = 0; it != entries.end(); ++it) {
      if (i++ * most < done * count) continue;
      ++done;
      add(it->second.choice);
    }
  }

  static constexpr std::int64_t kSmallestPart = 800;
  static constexpr std::size_t kNoEnd = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t kReportEvery = 5'000'000;
  static constexpr std::size_t kKicks = 2000;
  static constexpr std::size_t kFewKicks = 8;
  static constexpr std::size_t kKickSlice = 8'000'000;  // on a ladder, no kicks before each rung has been looked at
  static constexpr std::size_t kFirstSlice = 1'000'000;

  const Problem& problem_;
  const SolveOptions& options_;
  const PlannerKnobs& knobs_;
  Front& front_;
  Solution& solution_;
  StepModel model_;
  Evaluator evaluator_;
  Pool pool_;
  PriceSearch prices_;
  LocalSearch local_;
  std::vector<std::pair<std::int64_t, Choice>> nested_;  // with their peaks
  std::int64_t plain_bytes_ = 0;
  std::size_t limit_ = kNoEnd;
  std::size_t slice_end_ = kNoEnd;
  std::size_t next_report_ = 0;
  std::size_t other_work_ = 0;
  bool stopped_ = false;
};

void propose(const Problem& problem, const SolveOptions& options, Front& front, Solution& solution) {
  AutoSearch(problem, options, front, solution).run();
}

// `auto` has no formula of its own; the simulated peak takes its place.
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
