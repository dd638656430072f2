// Example of thinning, with two cells between 20 bytes and the 100 of the plan without recomputation, P: of plans of
// (90 bytes, 11 ns), (70, 13), (50, 15), (30, 20) and (25, 40), the first wins the cell [61, 102) and (50, 15) the cell
// [20, 61); (25, 40) has the least peak, and P is always kept. The others are left out.
//
// The winner of a cell is a minimum in a total order, and so is the plan of least peak. Minima of minima are minima of
// all, so it does not matter in which order plans were added, nor which had been left out in between.
//
// A question simulates all that is kept: O(actions), 2 ns each. Tested by tests/unit/solve/plan_family_test.cc and
// tests/property/plan_family_test.cc.
#include "reprise/plan_family.h"

#include <algorithm>
#include <utility>

#include "plan/liveness.h"
#include "reprise/error.h"
#include "reprise/solve.h"
#include "reprise/validate.h"
#include "simulate/simulator.h"
#include "solve/auto/adapt.h"

namespace reprise {
namespace {

using detail::Simulator;

constexpr std::size_t kAlwaysKept = 2;  // the plan without recomputation and the one of least peak

// The step as it is.
Plan plain_plan(const Graph& graph) {
  std::vector<OpId> runs;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) runs.push_back(op_id(i));
  return detail::place_frees(graph, runs);
}

// Any total order of actions would do.
auto key(const Action& action) {
  return std::pair(action.kind(), action.computes() ? index(action.op()) : index(action.value()));
}

auto cost(const Simulation& simulation) { return std::pair(simulation.time_ns, simulation.peak_bytes); }

// What leaves the family goes through here.
void check_legal(const Graph& graph, const Plan& plan) {
  const auto violation = validate(graph, plan);
  if (violation) throw InternalError("a family has an illegal plan: " + violation->message);
}

}  // namespace

class PlanFamily::Impl {
 public:
  Impl(Graph graph, Costs costs, std::size_t most_plans);
  bool add(const Plan& plan);
  [[nodiscard]] std::optional<Answer> fastest(const Graph& graph, const Costs& costs, std::int64_t budget_bytes) const;
  [[nodiscard]] std::optional<Answer> adapted(const Graph& graph, const Costs& costs, std::int64_t budget_bytes,
                                              std::size_t work) const;
  [[nodiscard]] std::int64_t smallest_peak_bytes(const Graph& graph, const Costs& costs) const;
  [[nodiscard]] std::vector<Plan> plans() const;
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Simulation simulation;  // at the family's own costs
    Plan plan;
  };
  [[nodiscard]] static bool comes_before(const Entry& one, const Entry& other);
  void thin();
  void check_question(const Graph& graph, const Costs& costs) const;
  // In the order of the entries, at these costs.
  [[nodiscard]] std::vector<Simulation> simulate_all(const Graph& graph, const Costs& costs) const;

  Graph graph_;
  Costs costs_;
  Plan plain_;  // without recomputation
  std::size_t cells_ = 0;
  std::int64_t lowest_bytes_ = 0;  // where the cells begin
  std::int64_t cell_bytes_ = 1;
  std::vector<Entry> entries_;  // in order, no two the same
};

PlanFamily::Impl::Impl(Graph graph, Costs costs, std::size_t most_plans)
    : graph_(std::move(graph)), costs_(std::move(costs)) {
  if (graph_.forward_only()) throw InputError("a family needs a step with backward ops; complete_backward makes one");
  if (graph_.num_communicators() > 0) throw InputError("a family does not take steps with communicators");
  if (most_plans <= kAlwaysKept) throw InputError("a family must keep at least 3 plans");
  check_costs(graph_, costs_);
  plain_ = plain_plan(graph_);
  cells_ = most_plans - kAlwaysKept;
  lowest_bytes_ = most_of_one_op(graph_, costs_);
  const std::int64_t range = Simulator(graph_, costs_).run(plain_).peak_bytes - lowest_bytes_;
  cell_bytes_ = std::max<std::int64_t>(0, range) / static_cast<std::int64_t>(cells_) + 1;
  add(plain_);
}

bool PlanFamily::Impl::add(const Plan& plan) {
  if (const auto violation = validate(graph_, plan)) {
    throw InputError("this is not a plan for the family's graph: " + violation->message);
  }
  if (copies(plan)) throw InputError("a family does not take plans that store values in the host's memory");
  Entry entry{.simulation = simulate(graph_, costs_, plan), .plan = plan};
  const auto place = std::ranges::lower_bound(entries_, entry, comes_before);
  if (place != entries_.end() && place->plan == plan) return false;
  entries_.insert(place, std::move(entry));
  thin();
  return std::ranges::any_of(entries_, [&](const Entry& one) { return one.plan == plan; });
}

bool PlanFamily::Impl::comes_before(const Entry& one, const Entry& other) {
  const auto time_and_peak = cost(one.simulation), others = cost(other.simulation);
  if (time_and_peak != others) return time_and_peak < others;
  return std::ranges::lexicographical_compare(one.plan.actions, other.plan.actions, {}, key, key);
}

// Goes from the fastest to the slowest, so the first of a cell is its fastest.
void PlanFamily::Impl::thin() {
  const auto least =
      std::ranges::min_element(entries_, {}, [](const Entry& entry) { return entry.simulation.peak_bytes; });
  std::vector<std::uint8_t> taken(cells_, 0);
  std::vector<Entry> rest;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const bool plain = entry->plan == plain_;
    const std::int64_t above = std::max<std::int64_t>(0, entry->simulation.peak_bytes - lowest_bytes_);
    const std::size_t cell = std::min(static_cast<std::size_t>(above / cell_bytes_), cells_ - 1);
    const bool wins = !plain && std::exchange(taken[cell], 1) == 0;
    if (wins || plain || entry == least) rest.push_back(std::move(*entry));
  }
  entries_ = std::move(rest);
}

void PlanFamily::Impl::check_question(const Graph& graph, const Costs& costs) const {
  if (!graph.same_structure(graph_))
    throw InputError("the graph '" + graph.name() + "' does not have the structure of the family's");
  check_costs(graph, costs);
}

std::vector<Simulation> PlanFamily::Impl::simulate_all(const Graph& graph, const Costs& costs) const {
  check_question(graph, costs);
  Simulator simulator(graph, costs);
  std::vector<Simulation> found;
  found.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    found.push_back(simulator.run(entry.plan));
    if (found.back().time_ns == Simulator::kTooLong) found.back().peak_bytes = Simulator::kTooLong;  // it never fits
  }
  return found;
}

std::optional<PlanFamily::Answer> PlanFamily::Impl::fastest(const Graph& graph, const Costs& costs,
                                                            std::int64_t budget_bytes) const {
  const std::vector<Simulation> all = simulate_all(graph, costs);
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].peak_bytes > budget_bytes) continue;
    if (!best || cost(all[i]) < cost(all[*best])) best = i;
  }
  if (!best) return std::nullopt;
  check_legal(graph, entries_[*best].plan);
  return Answer{.plan = entries_[*best].plan, .simulation = all[*best]};
}

std::optional<PlanFamily::Answer> PlanFamily::Impl::adapted(const Graph& graph, const Costs& costs,
                                                            std::int64_t budget_bytes, std::size_t work) const {
  std::optional<Answer> known = fastest(graph, costs, budget_bytes);
  if (known && known->simulation.recompute_ns == 0) return known;
  std::optional<Plan> plan = detail::adapt(graph, costs, plans(), budget_bytes, work);
  if (!plan) return known;
  check_legal(graph, *plan);
  const Simulation simulation = simulate(graph, costs, *plan);
  if (simulation.peak_bytes > budget_bytes || (known && cost(known->simulation) <= cost(simulation))) return known;
  return Answer{.plan = std::move(*plan), .simulation = simulation};
}

std::int64_t PlanFamily::Impl::smallest_peak_bytes(const Graph& graph, const Costs& costs) const {
  return std::ranges::min(simulate_all(graph, costs), {}, &Simulation::peak_bytes).peak_bytes;
}

std::vector<Plan> PlanFamily::Impl::plans() const {
  std::vector<Plan> found;
  found.reserve(entries_.size());
  for (const Entry& entry : entries_) found.push_back(entry.plan);
  return found;
}

PlanFamily::PlanFamily(Graph graph, Costs costs, std::size_t most_plans)
    : impl_(std::make_unique<Impl>(std::move(graph), std::move(costs), most_plans)) {}
PlanFamily::PlanFamily(PlanFamily&&) noexcept = default;
PlanFamily& PlanFamily::operator=(PlanFamily&&) noexcept = default;
PlanFamily::~PlanFamily() = default;

bool PlanFamily::add(const Plan& plan) { return impl_->add(plan); }
std::optional<PlanFamily::Answer> PlanFamily::fastest(const Graph& graph, const Costs& costs,
                                                      std::int64_t budget_bytes) const {
  return impl_->fastest(graph, costs, budget_bytes);
}
std::optional<PlanFamily::Answer> PlanFamily::adapted(const Graph& graph, const Costs& costs, std::int64_t budget_bytes,
                                                      std::size_t work) const {
  return impl_->adapted(graph, costs, budget_bytes, work);
}
std::int64_t PlanFamily::smallest_peak_bytes(const Graph& graph, const Costs& costs) const {
  return impl_->smallest_peak_bytes(graph, costs);
}
std::vector<Plan> PlanFamily::plans() const { return impl_->plans(); }
std::size_t PlanFamily::size() const { return impl_->size(); }

bool is_far_from_bound(const Graph& graph, const Costs& costs, const PlanFamily::Answer& answer) {
  constexpr std::int64_t kFar = 20;
  const auto far_from = [&](std::int64_t bound_ns) { return answer.simulation.time_ns - bound_ns > bound_ns / kFar; };
  return far_from(answer.simulation.time_ns - answer.simulation.recompute_ns) &&
         far_from(lower_bound_ns(graph, costs, answer.plan));
}

}  // namespace reprise
