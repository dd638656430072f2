#include "solve/overlap/flights.h"

#include <algorithm>
#include <tuple>

#include "plan/liveness.h"
#include "reprise/simulate.h"
#include "simulate/simulator.h"

namespace reprise::detail {

Flights::Flights(const Graph& graph, const Costs& costs, std::span<const OpId> runs) : graph_(graph), costs_(costs) {
  divide(runs);
  weigh();
  limit_starts();
  limit_waits();
}

// Tells what keeps its order from what floats. Every start stands just before its wait at first.
void Flights::divide(std::span<const OpId> runs) {
  std::size_t order = 0;
  for (const OpId op : runs) {
    ++order;
    if (graph_.is_start(op)) continue;
    if (!graph_.is_wait(op)) {
      base_.push_back(op);
      base_ns_.push_back(costs_.time_ns[index(op)]);
      lands_.push_back(kNone);
      continue;
    }
    const OpId start = graph_.partner(op);
    Flight flight{.start = start,
                  .wait = op,
                  .stream = graph_.stream(start),
                  .time_ns = costs_.time_ns[index(start)],
                  .workspace_bytes = costs_.workspace_bytes[index(start)],
                  .floats = graph_.once(op),
                  .order = order};
    for (const ValueId v : graph_.outputs(start)) flight.up_bytes += costs_.value_bytes[index(v)];
    if (!flight.floats) take_feeders(flight);
    flight.home = base_.size();
    flight.start_at = flight.wait_at = flight.home;
    if (!flight.floats) {
      base_.push_back(op);
      base_ns_.push_back(0);
      lands_.push_back(static_cast<std::uint32_t>(flights_.size()));
    }
    flights_.push_back(std::move(flight));
  }
}

// From the end of what keeps its order.
void Flights::take_feeders(Flight& flight) {
  const auto feeds = [&](OpId op) {
    if (graph_.once(op) || graph_.partner(op) != kNoOp || graph_.outputs(op).empty()) return false;
    const auto made = [&](ValueId v) { return graph_.residence(v) == Residence::kPlanned; };
    if (std::ranges::any_of(graph_.inputs(op), made)) return false;
    return std::ranges::all_of(graph_.outputs(op), [&](ValueId v) {
      const auto elsewhere = [&](OpId reader) { return reader != flight.start && reader != flight.wait; };
      return !graph_.readers(v).empty() && graph_.overwrites(v) == kNoValue && !graph_.pinned(v) &&
             !graph_.is_output(v) && std::ranges::none_of(graph_.readers(v), elsewhere);
    });
  };
  // What floats keeps the place that it has among what does not.
  const std::size_t least = flights_.empty() ? 0 : flights_.back().home;
  while (base_.size() > least && feeds(base_.back())) {
    const OpId op = base_.back();
    flight.feeders.insert(flight.feeders.begin(), op);
    flight.feeders_ns += costs_.time_ns[index(op)];
    flight.workspace_bytes = std::max(flight.workspace_bytes, costs_.workspace_bytes[index(op)]);
    for (const ValueId v : graph_.outputs(op)) flight.up_bytes += costs_.value_bytes[index(v)];
    base_.pop_back();
    base_ns_.pop_back();
    lands_.pop_back();
  }
}

// The bytes at each place, from the plan in which nothing has moved.
void Flights::weigh() {
  bytes_.assign(2 * places(), 0);
  const std::vector<Item> all = items();
  const Plan plan = place_frees(graph_, runs());
  const Timeline times = Simulator(graph_, costs_).timeline(plan);
  std::size_t place = 0, landed = 0, item = 0;
  std::int64_t live = times.start_bytes;
  for (std::size_t i = 0; i < plan.actions.size(); live = times.after_bytes[i++]) {
    const Action action = plan.actions[i];
    if (!action.computes()) continue;
    bytes_[2 * place] = std::max(bytes_[2 * place], live);
    const std::size_t at = 2 * place + (all[item].floats ? 0 : 1);
    bytes_[at] = std::max(bytes_[at], times.during_bytes[i]);
    if (graph_.is_wait(action.op())) {
      Flight& flight = flights_[landed++];
      for (std::size_t j = i + 1; j < plan.actions.size() && !plan.actions[j].computes(); ++j) {
        const ValueId freed = plan.actions[j].value();
        if (touches(flight.wait, freed)) flight.down_bytes += costs_.value_bytes[index(freed)];
      }
    }
    if (!all[item++].floats) ++place;
  }
}

bool Flights::touches(OpId op, ValueId value) const {
  const auto inputs = graph_.inputs(op), outputs = graph_.outputs(op);
  return std::ranges::find(inputs, value) != inputs.end() || std::ranges::find(outputs, value) != outputs.end();
}

// Forwards, how far starts may go up: not above what makes their operands, the caller's op, or a reader of what their
// waits made before.
void Flights::limit_starts() {
  ByValue<std::size_t> made(graph_.num_values(), 0), read(graph_.num_values(), 0);  // the place after that
  std::size_t at = 0, after_caller = 0;
  for (Flight& flight : flights_) {
    for (; at < flight.home; ++at) {
      if (base_[at] == graph_.caller_op()) after_caller = at + 1;
      for (const ValueId v : graph_.inputs(base_[at])) read[v] = at + 1;
      for (const ValueId v : graph_.outputs(base_[at])) made[v] = at + 1;
    }
    const ValueId result = graph_.outputs(flight.wait)[0];
    flight.first_place = std::max({after_caller, made[result], read[result]});
    const auto not_above = [&](OpId op) {
      for (const ValueId v : graph_.inputs(op)) flight.first_place = std::max(flight.first_place, made[v]);
    };
    not_above(flight.start);
    for (const OpId op : flight.feeders) not_above(op);
    if (flight.floats) made[result] = flight.home;  // a later collective at this place comes after it
  }
}

// Backwards, how far waits may go down: not below a reader of their results, what writes over an operand or makes it
// again, or the caller's op.
void Flights::limit_waits() {
  ByValue<std::uint8_t> is_operand(graph_.num_values(), 0);
  for (const Flight& flight : flights_) {
    for (const ValueId v : graph_.inputs(flight.start)) is_operand[v] = 1;
    for (const OpId op : flight.feeders) {
      for (const ValueId v : graph_.inputs(op)) is_operand[v] = 1;
    }
  }
  ByValue<std::size_t> read(graph_.num_values(), base_.size()), changed(graph_.num_values(), base_.size());
  std::size_t at = base_.size(), caller = base_.size();
  for (std::size_t f = flights_.size(); f-- > 0;) {
    Flight& flight = flights_[f];
    while (at > flight.home) {
      const OpId op = base_[--at];
      if (op == graph_.caller_op()) caller = at;
      for (const ValueId v : graph_.inputs(op)) read[v] = at;
      for (const ValueId v : graph_.outputs(op)) {
        changed[v] = at;
        if (graph_.overwrites(v) != kNoValue) changed[graph_.overwrites(v)] = at;
      }
    }
    const ValueId result = graph_.outputs(flight.wait)[0];
    flight.last_place = flight.home;
    if (!flight.floats || is_operand[result] != 0) continue;
    flight.last_place = std::min(caller, read[result]);
    for (const ValueId v : graph_.inputs(flight.start)) flight.last_place = std::min(flight.last_place, changed[v]);
  }
}

std::int64_t Flights::peak_bytes() const { return *std::ranges::max_element(bytes_); }

void Flights::add(std::size_t begin, std::size_t end, std::int64_t bytes) {
  for (std::size_t i = begin; i < end; ++i) bytes_[i] += bytes;
}

void Flights::move_start(Flight& flight, std::size_t place) {
  const auto add_up = [&](std::int64_t sign) {
    if (flight.start_at >= flight.home) return;
    add(2 * flight.start_at, 2 * flight.home, sign * flight.up_bytes);
    add(2 * flight.start_at, 2 * flight.start_at + 1, sign * flight.workspace_bytes);
  };
  add_up(-1);
  flight.start_at = place;
  add_up(1);
  sorted_ = false;
}

void Flights::move_wait(Flight& flight, std::size_t place) {
  if (flight.wait_at > flight.home) add(2 * flight.home + 1, 2 * flight.wait_at + 1, -flight.down_bytes);
  if (place > flight.home) add(2 * flight.home + 1, 2 * place + 1, flight.down_bytes);
  flight.wait_at = place;
  sorted_ = false;
}

void Flights::sort_events() {
  if (sorted_) return;
  events_.clear();
  for (std::uint32_t f = 0; f < flights_.size(); ++f) {
    events_.push_back({flights_[f].start_at, flights_[f].order, f, false});
    if (flights_[f].floats) events_.push_back({flights_[f].wait_at, flights_[f].order, f, true});
  }
  std::ranges::sort(events_, {}, [](const Event& e) { return std::tuple(e.place, e.order, e.wait); });
  sorted_ = true;
}

std::int64_t Flights::fly() {
  sort_events();
  communicator_ns_.assign(std::size_t{graph_.num_communicators()} + 1, 0);
  clock_ns_.resize(places());
  std::int64_t now_ns = 0;
  const auto land = [&](Flight& flight) {
    flight.exposed_ns = std::max<std::int64_t>(0, flight.ready_ns - now_ns);
    now_ns += flight.exposed_ns;
  };
  auto event = events_.begin();
  for (std::size_t place = 0; place < places(); ++place) {
    clock_ns_[place] = now_ns;
    for (; event != events_.end() && event->place == place; ++event) {
      Flight& flight = flights_[event->flight];
      if (event->wait) {
        land(flight);
        continue;
      }
      now_ns += flight.feeders_ns;
      std::int64_t& clock_ns = communicator_ns_[flight.stream];
      clock_ns = std::max(clock_ns, now_ns) + flight.time_ns;
      flight.ready_ns = clock_ns;
    }
    if (place == base_.size()) break;
    if (lands_[place] != kNone) land(flights_[lands_[place]]);
    now_ns += base_ns_[place];
  }
  return now_ns;
}

// As fly(), but a wait that floats comes where the device need not wait for it any more, or at its last place.
void Flights::float_waits() {
  sort_events();
  communicator_ns_.assign(std::size_t{graph_.num_communicators()} + 1, 0);
  std::int64_t now_ns = 0;
  std::vector<std::uint32_t> pending;
  std::vector<std::size_t> target(flights_.size(), 0);
  auto event = events_.begin();
  for (std::size_t place = 0; place < places(); ++place) {
    for (; event != events_.end() && event->place == place; ++event) {
      if (event->wait) continue;
      Flight& flight = flights_[event->flight];
      now_ns += flight.feeders_ns;
      std::int64_t& clock_ns = communicator_ns_[flight.stream];
      clock_ns = std::max(clock_ns, now_ns) + flight.time_ns;
      flight.ready_ns = clock_ns;
      if (flight.floats) pending.push_back(event->flight);
    }
    std::erase_if(pending, [&](std::uint32_t f) {
      const Flight& flight = flights_[f];
      if (place < flight.home || (flight.ready_ns > now_ns && place < flight.last_place)) return false;
      now_ns = std::max(now_ns, flight.ready_ns);
      target[f] = place;
      return true;
    });
    if (place == base_.size()) break;
    if (lands_[place] != kNone) now_ns = std::max(now_ns, flights_[lands_[place]].ready_ns);
    now_ns += base_ns_[place];
  }
  for (std::size_t f = 0; f < flights_.size(); ++f) {
    if (flights_[f].floats) move_wait(flights_[f], target[f]);
  }
}

std::vector<Flights::Item> Flights::items() {
  sort_events();
  std::vector<Item> found;
  auto event = events_.begin();
  for (std::size_t place = 0; place < places(); ++place) {
    for (; event != events_.end() && event->place == place; ++event) {
      const Flight& flight = flights_[event->flight];
      if (!event->wait) {
        for (const OpId op : flight.feeders) found.push_back({op, true});
      }
      found.push_back({event->wait ? flight.wait : flight.start, true});
    }
    if (place < base_.size()) found.push_back({base_[place], false});
  }
  return found;
}

std::vector<OpId> Flights::runs() {
  std::vector<OpId> found;
  for (const Item& item : items()) found.push_back(item.op);
  return found;
}

}  // namespace reprise::detail
