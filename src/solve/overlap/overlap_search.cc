#include "solve/overlap/overlap_search.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <memory>
#include <vector>

#include "plan/liveness.h"
#include "simulate/simulator.h"
#include "solve/overlap/hoist.h"
#include "solve/overlap/joined.h"

namespace reprise::detail {
namespace {

std::vector<OpId> runs_of(const Plan& plan) {
  std::vector<OpId> runs;
  for (const Action action : plan.actions) {
    if (action.computes()) runs.push_back(action.op());
  }
  return runs;
}

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

// A planner on the joined step at one price, whose ops need some bytes more than they do (by op of the joined step;
// none if it is empty).
class PricedSearch {
 public:
  PricedSearch(const Problem& whole, double price, const std::vector<std::int64_t>& reserved_bytes)
      : joined_(whole.step(), whole.costs(), price),
        costs_(with(joined_.costs(), reserved_bytes)),
        problem_(joined_.graph(), costs_),
        front_(problem_) {
    front_.add_plain();
  }

  void search(const Planner& planner, const SolveOptions& options, Solution& solution) {
    planner.propose(problem_, options, front_, solution);
  }
  [[nodiscard]] const Front& front() const { return front_; }
  [[nodiscard]] std::size_t ops() const { return joined_.graph().num_ops(); }
  [[nodiscard]] std::vector<OpId> whole(const Front::Point& point) const { return joined_.whole(runs_of(point.plan)); }

 private:
  static Costs with(Costs costs, const std::vector<std::int64_t>& reserved_bytes) {
    for (std::size_t i = 0; i < reserved_bytes.size(); ++i) costs.workspace_bytes[i] += reserved_bytes[i];
    return costs;
  }

  JoinedStep joined_;
  Costs costs_;
  Problem problem_;
  Front front_;
};

// By op of the joined step: the most bytes that are in flight beside a run of it where a plan is hoisted without a
// budget, in addition to what the plan takes where it is not.
std::vector<std::int64_t> bytes_in_flight(const Graph& graph, const Costs& costs, const std::vector<OpId>& hoisted) {
  const JoinedStep joined(graph, costs, 1);
  std::vector<OpId> order;
  for (const OpId op : hoisted) {
    if (!graph.is_start(op)) order.push_back(joined.joined(op));
  }
  const std::vector<OpId> runs = joined.whole(order);
  const auto during = [&](const Plan& some) {
    std::vector<std::vector<std::int64_t>> bytes(graph.num_ops());  // by run of each op
    const Timeline times = Simulator(graph, costs).timeline(some);
    for (std::size_t i = 0; i < some.actions.size(); ++i) {
      if (some.actions[i].computes()) bytes[index(some.actions[i].op())].push_back(times.during_bytes[i]);
    }
    return bytes;
  };
  const auto before = during(place_frees(graph, runs)), after = during(hoist(graph, costs, runs, kUnlimited));
  std::vector<std::int64_t> found(joined.graph().num_ops(), 0);
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    if (graph.is_start(op_id(i))) continue;
    std::int64_t& most = found[index(joined.joined(op_id(i)))];
    for (std::size_t run = 0; run < before[i].size(); ++run) most = std::max(most, after[i][run] - before[i][run]);
  }
  return found;
}

class OverlapSearch {
 public:
  OverlapSearch(const Planner& planner, const Problem& problem, const SolveOptions& options, Front& front,
                Solution& solution)
      : planner_(planner), problem_(problem), options_(options), front_(front), solution_(solution) {
    begin({});
  }

  void run() {
    if (options_.all_budgets) {
      search_all(options_.work / kPrices.size(), std::nullopt);
      hoist_for_all_budgets();
    } else if (!options_.budget_bytes) {  // as for a budget that is too small
      search_all(options_.work / 16, std::nullopt);
      search_least();
      hoist_at_their_peaks();
    } else {
      aim_at(*options_.budget_bytes);
      if (asked_to_stop(options_)) hoist_fastest(*options_.budget_bytes);
    }
  }

 private:
  static constexpr std::array kPrices{1.0, 0.5, 0.05};

  void begin(const std::vector<std::int64_t>& reserved_bytes) {
    searches_.clear();
    const std::span prices = std::span(kPrices).first(&planner_ == &kAutoPlanner ? kPrices.size() : 1);
    for (const double price : prices) {
      searches_.push_back(std::make_unique<PricedSearch>(problem_, price, reserved_bytes));
    }
  }

  // At this budget, or at all of them.
  void search_all(std::size_t work, std::optional<std::int64_t> budget_bytes) {
    for (const auto& search : searches_) {
      SolveOptions options = options_;
      options.work = work;
      options.budget_bytes = budget_bytes;
      options.all_budgets = !budget_bytes;
      search->search(planner_, options, solution_);
    }
  }

  // For little memory. Collectives cost nothing there, so that the smallest budget that a forecast names, which assumes
  // another network, is that of the step.
  void search_least() {
    SolveOptions options = options_;
    options.budget_bytes.reset();
    options.all_budgets = false;
    searches_.push_back(std::make_unique<PricedSearch>(problem_, 0, std::vector<std::int64_t>()));
    searches_.back()->search(planner_, options, solution_);
  }

  // First at all budgets, which does not depend on the one asked for, so that what a refusal names has a plan.
  void aim_at(std::int64_t budget_bytes) {
    constexpr int kRounds = 4;
    constexpr std::array kShares{100, 94};  // percent of the budget: what is left is for what is in flight
    search_all(options_.work / 16, std::nullopt);
    if (!fits(budget_bytes)) search_least();
    if (!fits(budget_bytes)) return hoist_at_their_peaks();
    for (const int share : kShares) {
      search_all(options_.work / 16, budget_bytes / 100 * share);
    }
    for (const auto& search : searches_) hoist_below(*search, budget_bytes);
    const Front::Point* best = front_.fastest(budget_bytes);
    if (best == nullptr) return;
    std::vector<std::int64_t> reserved_bytes(searches_.front()->ops(), 0);
    std::vector<OpId> runs = runs_of(best->plan);
    for (int round = 0; round < kRounds && !runs.empty(); ++round) {
      reserve(runs, reserved_bytes);
      begin(reserved_bytes);
      search_all(options_.work / 16, budget_bytes);
      for (const auto& search : searches_) hoist_below(*search, budget_bytes);
      runs = fastest_without_budget(budget_bytes);
    }
  }

  // Room for what would be in flight if these runs were hoisted without a budget.
  void reserve(const std::vector<OpId>& runs, std::vector<std::int64_t>& reserved_bytes) const {
    const std::vector<std::int64_t> more = bytes_in_flight(problem_.step(), problem_.costs(), runs);
    for (std::size_t i = 0; i < more.size(); ++i) reserved_bytes[i] = std::max(reserved_bytes[i], more[i]);
  }

  // Takes the fastest plan at each price, hoists them without a budget, and returns the runs of the fastest one.
  [[nodiscard]] std::vector<OpId> fastest_without_budget(std::int64_t budget_bytes) const {
    std::vector<OpId> best;
    std::int64_t least_ns = std::numeric_limits<std::int64_t>::max();
    Simulator simulator(problem_.step(), problem_.costs());
    for (const auto& search : searches_) {
      const Front::Point* point = search->front().fastest(budget_bytes);
      if (point == nullptr) continue;
      std::vector<OpId> runs = search->whole(*point);
      const std::int64_t time_ns = simulator.run(hoist(problem_.step(), problem_.costs(), runs, kUnlimited)).time_ns;
      if (time_ns < least_ns) best = std::move(runs);
      least_ns = std::min(least_ns, time_ns);
    }
    return best;
  }

  [[nodiscard]] bool fits(std::int64_t budget_bytes) const {
    return std::ranges::any_of(
        searches_, [&](const auto& search) { return search->front().points().begin()->first <= budget_bytes; });
  }

  // For a search that was stopped: one plan at least has its collectives beside other ops.
  void hoist_fastest(std::int64_t budget_bytes) {
    const Front::Point* best = front_.fastest(budget_bytes);
    if (best == nullptr) return;
    front_.add(hoist(problem_.step(), problem_.costs(), runs_of(best->plan), budget_bytes));
  }

  // After a search that was stopped, what was found still counts, with every start just before its wait.
  void add(const PricedSearch& search, const Front::Point& point, std::int64_t budget_bytes) {
    const std::vector<OpId> runs = search.whole(point);
    front_.add(asked_to_stop(options_) ? place_frees(problem_.step(), runs)
                                       : hoist(problem_.step(), problem_.costs(), runs, budget_bytes));
  }

  // The fastest few, and an even selection of all others below the budget.
  void hoist_below(const PricedSearch& search, std::int64_t budget_bytes) {
    constexpr std::size_t kFastest = 12, kOthers = 36;
    const auto& points = search.front().points();
    const auto end = points.upper_bound(budget_bytes);
    const auto count = static_cast<std::size_t>(std::distance(points.begin(), end));
    const std::size_t others = count - std::min(count, kFastest);
    std::size_t at = 0, done = 0;
    for (auto point = points.begin(); point != end; ++point, ++at) {
      const bool chosen = at >= others || at * std::min(others, kOthers) >= done * others;
      if (!chosen) continue;
      if (at < others) ++done;
      add(search, point->second, budget_bytes);
    }
  }

  void hoist_at_their_peaks() {
    for (const auto& search : searches_) {
      for (const auto& [peak, point] : search->front().points()) add(*search, point, peak);
    }
  }

  // At a ladder of budgets: the fastest within it, and within somewhat less.
  void hoist_for_all_budgets() {
    constexpr std::int64_t kRungs = 24;
    constexpr std::array kShares{100, 97, 93, 88, 80, 70};
    hoist_at_their_peaks();
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (const auto& search : searches_) {
      least = std::min(least, search->front().points().begin()->first);
      most = std::max(most, search->front().points().rbegin()->first);
    }
    for (std::int64_t rung = 1; rung <= kRungs + kRungs / 2; ++rung) {
      const std::int64_t budget = least + (most - least) / kRungs * rung;
      for (const auto& search : searches_) {
        const Front::Point* before = nullptr;
        for (const int share : kShares) {
          const Front::Point* point = search->front().fastest(budget / 100 * share);
          if (point != nullptr && point != before) add(*search, *point, budget);
          before = point;
        }
      }
    }
  }

  const Planner& planner_;
  const Problem& problem_;
  const SolveOptions& options_;
  Front& front_;
  Solution& solution_;
  std::vector<std::unique_ptr<PricedSearch>> searches_;
};

}  // namespace

void propose_overlapping(const Planner& planner, const Problem& problem, const SolveOptions& options, Front& front,
                         Solution& solution) {
  OverlapSearch(planner, problem, options, front, solution).run();
}

}  // namespace reprise::detail
