#include "reprise/simulate.h"

#include <algorithm>
#include <utility>

#include "check.h"
#include "reprise/error.h"
#include "simulate/simulator.h"

namespace reprise {
namespace {

using detail::Simulator;

std::int64_t sum_or_too_long(std::int64_t a, std::int64_t b) {
  return b > Simulator::kTooLong - a ? Simulator::kTooLong : a + b;
}

void check_fits(const Simulation& found) {
  if (found.time_ns == Simulator::kTooLong) throw InputError("the total time of the plan does not fit 64 bits");
}

}  // namespace

namespace detail {

Simulator::Simulator(const Graph& graph, const Costs& costs) {
  ops_.reserve(graph.num_ops());
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    const OpId op = op_id(i);
    OpCost cost{.time_ns = costs.time_ns[index(op)],
                .transient_bytes = costs.workspace_bytes[index(op)],
                .output_bytes = 0,
                .in_place_bytes = 0,
                .outputs_begin = static_cast<std::uint32_t>(outputs_.size()),
                .outputs_end = 0};
    for (const ValueId v : graph.outputs(op)) {
      outputs_.push_back(v);
      cost.output_bytes += costs.value_bytes[index(v)];
      if (graph.overwrites(v) != kNoValue) cost.in_place_bytes += costs.value_bytes[index(v)];
    }
    cost.transient_bytes += cost.output_bytes;
    cost.outputs_end = static_cast<std::uint32_t>(outputs_.size());
    ops_.push_back(cost);
  }
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const ValueId v = value_id(i);
    const bool starts_live = graph.residence(v) != Residence::kPlanned;
    bytes_.push_back(costs.value_bytes[index(v)]);
    overwrites_.push_back(graph.overwrites(v));
    live_at_start_.push_back(starts_live ? 1 : 0);
    if (starts_live) start_bytes_ += costs.value_bytes[index(v)];
  }
}

Simulation Simulator::run(const Plan& plan) {
  live_ = live_at_start_;
  done_.assign(ops_.size(), 0);
  std::int64_t live_bytes = start_bytes_;
  Simulation result{.peak_bytes = start_bytes_};
  const auto compute = [&](OpId op, bool in_place) {
    const OpCost& cost = ops_[index(op)];
    result.time_ns = sum_or_too_long(result.time_ns, cost.time_ns);
    if (done_[index(op)] != 0) result.recompute_ns = sum_or_too_long(result.recompute_ns, cost.time_ns);
    done_[index(op)] = 1;
    const std::int64_t saved = in_place ? cost.in_place_bytes : 0;
    result.peak_bytes = std::max(result.peak_bytes, live_bytes + cost.transient_bytes - saved);
    live_bytes += cost.output_bytes - saved;
    for (std::uint32_t i = cost.outputs_begin; i < cost.outputs_end; ++i) {
      const std::size_t v = index(outputs_[i]);
      if (live_[v] != 0) live_bytes -= bytes_[v];  // the second copy is dropped at once
      live_[v] = 1;
      if (in_place && overwrites_[v] != kNoValue) live_[index(overwrites_[v])] = 0;
    }
  };
  for (const Action action : plan.actions) {
    switch (action.kind()) {
      case Action::Kind::kCompute:
        compute(action.op(), /*in_place=*/false);
        break;
      case Action::Kind::kComputeInPlace:
        compute(action.op(), /*in_place=*/true);
        break;
      case Action::Kind::kFree:
        REPRISE_CHECK(live_[index(action.value())] != 0);
        live_[index(action.value())] = 0;
        live_bytes -= bytes_[index(action.value())];
        break;
    }
  }
  return result;
}

}  // namespace detail

Simulation simulate(const Graph& graph, const Costs& costs, const Plan& plan) {
  check_costs(graph, costs);
  const Simulation found = Simulator(graph, costs).run(plan);
  check_fits(found);
  return found;
}

namespace {

// The slow twin of Simulator::run that also remembers; written apart so that the two check each other in tests.
class Tally {
 public:
  Tally(const Graph& graph, const Costs& costs)
      : graph_(graph), costs_(costs), live_(graph.num_values(), 0), runs_(graph.num_ops(), 0) {
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      if (graph.residence(value_id(i)) == Residence::kPlanned) continue;
      live_[i] = 1;
      bytes_ += costs.value_bytes[i];
    }
  }

  // Bytes at the highest instant of the action.
  std::int64_t take(const Action& action) {
    switch (action.kind()) {
      case Action::Kind::kCompute:
        return compute(action.op(), /*in_place=*/false);
      case Action::Kind::kComputeInPlace:
        return compute(action.op(), /*in_place=*/true);
      case Action::Kind::kFree:
        return free(action.value());
    }
    throw InternalError("an action of no kind");
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t time_ns() const { return time_ns_; }
  [[nodiscard]] std::int64_t recompute_ns() const { return recompute_ns_; }

  [[nodiscard]] std::vector<ValueId> live() const {
    std::vector<ValueId> values;
    for (std::size_t i = 0; i < live_.size(); ++i) {
      if (live_[i] != 0) values.push_back(value_id(i));
    }
    return values;
  }

 private:
  std::int64_t free(ValueId v) {
    live_[index(v)] = 0;
    return std::exchange(bytes_, bytes_ - costs_.value_bytes[index(v)]);
  }

  std::int64_t compute(OpId op, bool in_place) {
    std::int64_t during = bytes_ + costs_.workspace_bytes[index(op)];
    for (const ValueId v : graph_.outputs(op)) {
      if (in_place && graph_.overwrites(v) != kNoValue) {
        live_[index(graph_.overwrites(v))] = 0;
      } else {
        during += costs_.value_bytes[index(v)];
        if (live_[index(v)] == 0) bytes_ += costs_.value_bytes[index(v)];
      }
      live_[index(v)] = 1;
    }
    time_ns_ = sum_or_too_long(time_ns_, costs_.time_ns[index(op)]);
    if (runs_[index(op)]++ != 0) recompute_ns_ = sum_or_too_long(recompute_ns_, costs_.time_ns[index(op)]);
    return during;
  }

  const Graph& graph_;
  const Costs& costs_;
  std::vector<std::uint8_t> live_;
  std::vector<std::uint32_t> runs_;
  std::int64_t bytes_ = 0;
  std::int64_t time_ns_ = 0;
  std::int64_t recompute_ns_ = 0;
};

}  // namespace

Timeline timeline(const Graph& graph, const Costs& costs, const Plan& plan) {
  check_costs(graph, costs);
  Timeline result;
  Tally tally(graph, costs);
  result.start_bytes = tally.bytes();
  for (const Action& action : plan.actions) {
    result.during_bytes.push_back(tally.take(action));
    result.after_bytes.push_back(tally.bytes());
  }
  const auto highest = std::ranges::max_element(result.during_bytes);
  result.peak_action = static_cast<std::size_t>(highest - result.during_bytes.begin());
  result.total = {.peak_bytes = plan.actions.empty() ? result.start_bytes : *highest,
                  .time_ns = tally.time_ns(),
                  .recompute_ns = tally.recompute_ns()};
  check_fits(result.total);
  Tally again(graph, costs);
  for (std::size_t i = 0; i <= result.peak_action && i < plan.actions.size(); ++i) {
    if (i == result.peak_action && !plan.actions[i].computes()) break;  // the peak is before it
    again.take(plan.actions[i]);
  }
  result.live_at_peak = again.live();
  std::ranges::stable_sort(result.live_at_peak, std::ranges::greater{},
                           [&](ValueId v) { return costs.value_bytes[index(v)]; });
  return result;
}

}  // namespace reprise
