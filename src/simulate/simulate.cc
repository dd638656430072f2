#include "reprise/simulate.h"

#include <algorithm>

#include "check.h"
#include "reprise/error.h"
#include "reprise/lives.h"
#include "simulate/simulator.h"

namespace reprise {
namespace {

using detail::Simulator;

void check_fits(const Simulation& found) {
  if (found.time_ns == Simulator::kTooLong) throw InputError("the total time of the plan does not fit into 64 bits");
}

}  // namespace

namespace detail {

Simulator::Simulator(const Graph& graph, const Costs& costs) : graph_(graph), costs_(costs) {
  ops_.reserve(graph.num_ops());
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    const OpId op = op_id(i);
    OpCost cost{.time_ns = graph.is_start(op) ? 0 : costs.time_ns[index(op)],
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

// Tells `observe` of every action: bytes at its highest instant, and after it.
template <typename Observe>
Simulation Simulator::walk(std::span<const Action> actions, const Observe& observe) {
  live_ = live_at_start_;
  done_.assign(ops_.size(), 0);
  std::int64_t live_bytes = start_bytes_;
  Simulation result{.peak_bytes = start_bytes_};
  const auto compute = [&](OpId op, bool in_place) {
    const OpCost& cost = ops_[index(op)];
    result.time_ns = Clocks::sum_or_too_long(result.time_ns, cost.time_ns);
    if (done_[index(op)] != 0) result.recompute_ns = Clocks::sum_or_too_long(result.recompute_ns, cost.time_ns);
    done_[index(op)] = 1;
    const std::int64_t saved = in_place ? cost.in_place_bytes : 0;
    const std::int64_t during = live_bytes + cost.transient_bytes - saved;
    result.peak_bytes = std::max(result.peak_bytes, during);
    live_bytes += cost.output_bytes - saved;
    for (std::uint32_t i = cost.outputs_begin; i < cost.outputs_end; ++i) {
      const std::size_t v = index(outputs_[i]);
      if (live_[v] != 0) live_bytes -= bytes_[v];  // the second copy is dropped at once
      live_[v] = 1;
      if (in_place && overwrites_[v] != kNoValue) live_[index(overwrites_[v])] = 0;
    }
    observe(during, live_bytes);
  };
  for (const Action action : actions) {
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
        observe(live_bytes, live_bytes - bytes_[index(action.value())]);
        live_bytes -= bytes_[index(action.value())];
        break;
      case Action::Kind::kStore:
        observe(live_bytes, live_bytes);
        break;
      case Action::Kind::kFetch:
        live_[index(action.value())] = 1;
        live_bytes += bytes_[index(action.value())];
        result.peak_bytes = std::max(result.peak_bytes, live_bytes);
        observe(live_bytes, live_bytes);
        break;
    }
  }
  return result;
}

std::int64_t Simulator::host_peak_bytes(const Plan& plan) const {
  std::vector<std::int64_t> change(plan.actions.size() + 1, 0);
  for (const HostLife& life : host_lives(graph_, plan)) {
    change[life.first] += bytes_[index(life.value)];
    change[life.last.value_or(plan.actions.size())] -= bytes_[index(life.value)];
  }
  std::int64_t now = 0, peak = 0;
  for (const std::int64_t bytes : change) peak = std::max(peak, now += bytes);
  return peak;
}

// Without copies and communicators the time is the sum over the runs.
bool Simulator::needs_clocks(const Plan& plan) const { return graph_.num_communicators() > 0 || copies(plan); }

// Puts the time by the clocks in place of the sum over the runs, which leaves out waits.
void Simulator::take_from(const Clocks& clocks, const Plan& plan, Simulation& total) const {
  total.time_ns = clocks.now_ns();
  total.wait_ns = clocks.wait_ns();
  total.exposed_ns = clocks.exposed_ns();
  total.host_peak_bytes = host_peak_bytes(plan);
}

Simulation Simulator::run(const Plan& plan) {
  Simulation result = walk(plan.actions, [](std::int64_t, std::int64_t) {});
  if (!needs_clocks(plan)) return result;
  Clocks clocks(graph_, costs_);
  for (const Action action : plan.actions) clocks.take(action);
  take_from(clocks, plan, result);
  return result;
}

Timeline Simulator::timeline(const Plan& plan) {
  Timeline result;
  result.start_bytes = start_bytes_;
  result.total = walk(plan.actions, [&](std::int64_t during, std::int64_t after) {
    result.during_bytes.push_back(during);
    result.after_bytes.push_back(after);
  });
  Clocks clocks(graph_, costs_);
  for (const Action action : plan.actions) {
    const Clocks::Span span = clocks.take(action);
    result.begin_ns.push_back(span.begin_ns);
    result.end_ns.push_back(span.end_ns);
  }
  if (needs_clocks(plan)) take_from(clocks, plan, result.total);
  const auto highest = std::ranges::max_element(result.during_bytes);
  result.peak_action = static_cast<std::size_t>(highest - result.during_bytes.begin());
  const bool frees = !plan.actions.empty() && plan.actions[result.peak_action].frees();
  // The peak is before a free.
  const std::size_t count = std::min(result.peak_action + (frees ? 0 : 1), plan.actions.size());
  walk(std::span(plan.actions).first(count), [](std::int64_t, std::int64_t) {});
  for (std::size_t i = 0; i < live_.size(); ++i) {
    if (live_[i] != 0) result.live_at_peak.push_back(value_id(i));
  }
  std::ranges::stable_sort(result.live_at_peak, std::ranges::greater{}, [&](ValueId v) { return bytes_[index(v)]; });
  return result;
}

}  // namespace detail

Simulation simulate(const Graph& graph, const Costs& costs, const Plan& plan) {
  check_costs(graph, costs);
  const Simulation found = Simulator(graph, costs).run(plan);
  check_fits(found);
  return found;
}

Timeline timeline(const Graph& graph, const Costs& costs, const Plan& plan) {
  check_costs(graph, costs);
  Timeline found = Simulator(graph, costs).timeline(plan);
  check_fits(found.total);
  return found;
}

std::int64_t most_of_one_op(const Graph& graph, const Costs& costs) {
  std::int64_t resident = 0;
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    if (graph.residence(value_id(i)) == Residence::kResident) resident += costs.value_bytes[i];
  }
  std::int64_t most = 0;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    std::int64_t bytes = costs.workspace_bytes[i];
    for (const ValueId v : graph.inputs(op_id(i))) {
      if (graph.residence(v) != Residence::kResident) bytes += costs.value_bytes[index(v)];
    }
    for (const ValueId v : graph.outputs(op_id(i))) {
      if (graph.overwrites(v) == kNoValue) bytes += costs.value_bytes[index(v)];  // it may run in place
    }
    most = std::max(most, bytes);
  }
  return resident + most;
}

}  // namespace reprise
