#include "simulate/clocks.h"

#include <algorithm>
#include <utility>

#include "reprise/error.h"

namespace reprise::detail {

Clocks::Clocks(const Graph& graph, const Costs& costs)
    : graph_(graph),
      costs_(costs),
      communicator_ns_(std::size_t{graph.num_communicators()} + 1, 0),
      stored_ns_(graph.num_values(), kNothing),
      arrival_ns_(graph.num_values(), kNothing) {}

Clocks::Span Clocks::take(Action action) {
  switch (action.kind()) {
    case Action::Kind::kCompute:
      return compute(action.op(), /*in_place=*/false);
    case Action::Kind::kComputeInPlace:
      return compute(action.op(), /*in_place=*/true);
    case Action::Kind::kFree:
      wait_for_arrival(action.value());
      wait_for_store(action.value());
      return {device_ns_, device_ns_};
    case Action::Kind::kStore: {
      const Span span = take_turn(down_ns_, device_ns_, link().down_ns(costs_.value_bytes[index(action.value())]));
      stored_ns_[action.value()] = span.end_ns;
      return span;
    }
    case Action::Kind::kFetch: {
      const std::int64_t not_before_ns = std::max(device_ns_, stored_ns_[action.value()]);
      std::int64_t& clock_ns = link().both_ways ? up_ns_ : down_ns_;
      const Span span = take_turn(clock_ns, not_before_ns, link().up_ns(costs_.value_bytes[index(action.value())]));
      arrival_ns_[action.value()] = span.end_ns;
      return span;
    }
  }
  return {};
}

const Link& Clocks::link() const {
  if (!costs_.link) throw InputError("the plan copies to the host and back, but the costs have no link");
  return *costs_.link;
}

Clocks::Span Clocks::compute(OpId op, bool in_place) {
  for (const ValueId v : graph_.inputs(op)) wait_for_arrival(v);
  for (const ValueId v : graph_.outputs(op)) {
    if (in_place && graph_.overwrites(v) != kNoValue) wait_for_store(graph_.overwrites(v));
  }
  if (graph_.is_start(op)) {
    const Span span = take_turn(communicator_ns_[graph_.stream(op)], device_ns_, costs_.time_ns[index(op)]);
    for (const ValueId v : graph_.outputs(op)) arrival_ns_[v] = span.end_ns;
    return span;
  }
  return take_turn(device_ns_, device_ns_, costs_.time_ns[index(op)]);
}

// On one stream or one direction of the link, what was asked for first goes first.
Clocks::Span Clocks::take_turn(std::int64_t& clock_ns, std::int64_t not_before_ns, std::int64_t duration_ns) const {
  const std::int64_t begin_ns = std::max(clock_ns, not_before_ns);
  clock_ns = sum_or_too_long(begin_ns, duration_ns);
  return {begin_ns, clock_ns};
}

void Clocks::wait_until(std::int64_t at_ns, std::int64_t& waited_ns) {
  if (at_ns <= device_ns_) return;
  waited_ns = sum_or_too_long(waited_ns, at_ns - device_ns_);
  device_ns_ = at_ns;
}

void Clocks::wait_for_arrival(ValueId value) {
  if (arrival_ns_[value] == kNothing) return;
  wait_until(std::exchange(arrival_ns_[value], kNothing), graph_.in_flight(value) ? exposed_ns_ : wait_ns_);
}

void Clocks::wait_for_store(ValueId value) {
  if (stored_ns_[value] != kNothing) wait_until(stored_ns_[value], wait_ns_);
}

}  // namespace reprise::detail
