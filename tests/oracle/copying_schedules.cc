#include "oracle/copying_schedules.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise::test {
namespace {

constexpr std::size_t kMost = 8;
using Ns = std::int16_t;              // Steps here are tiny, and millions of states are compared with each other.
using Times = std::array<Ns, kMost>;  // by value, from now on; 0: done, or there is none

struct State {
  std::uint32_t live = 0;
  std::uint32_t stored = 0;
  std::uint32_t done = 0;  // ops that are `once` or backward and have run
  Ns down = 0;             // how long each direction is busy from now on
  Ns up = 0;
  Times storing{};
  Times coming{};

  friend bool operator==(const State&, const State&) = default;
};
static_assert(std::has_unique_object_representations_v<State>);

struct HashOfBytes {
  std::size_t operator()(const State& state) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&state), sizeof state});
  }
};

std::uint32_t bit(ValueId v) { return 1U << index(v); }
std::uint32_t bit(OpId op) { return 1U << index(op); }

Ns ns(std::int64_t time) {
  if (time > std::numeric_limits<Ns>::max()) throw std::out_of_range("these times are too long for this search");
  return static_cast<Ns>(time);
}

class Search {
 public:
  Search(const Graph& step, const Costs& costs, std::int64_t budget, std::span<const OpId> order)
      : step_(step), costs_(costs), budget_(budget), later_(step.num_ops(), 0) {
    std::uint32_t later = 0;
    for (std::size_t i = order.size(); i-- > 0;) {
      later_[index(order[i])] = later;
      later |= bit(order[i]);
    }
  }

  std::optional<std::int64_t> run() {
    State start;
    for (std::size_t v = 0; v < step_.num_values(); ++v) {
      if (step_.residence(value_id(v)) != Residence::kPlanned) start.live |= bit(value_id(v));
    }
    if (bytes(start.live) > budget_) return std::nullopt;
    reach(start, 0);
    while (!open_.empty()) {
      const auto [time, at] = open_.top();
      open_.pop();
      const State& state = at->first;  // Elements of the table stay where they are.
      if (at->second < time) continue;
      if (is_goal(state)) return time;
      for (std::size_t v = 0; v < step_.num_values(); ++v) act_on(state, value_id(v), time);
      for (std::size_t i = 0; i < step_.num_ops(); ++i) {
        if (!may_run(state, op_id(i))) continue;
        compute(state, op_id(i), /*in_place=*/false, time);
        compute(state, op_id(i), /*in_place=*/true, time);
      }
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] bool is_goal(const State& state) const {
    for (const ValueId v : step_.step_outputs()) {
      if ((state.live & bit(v)) == 0) return false;
    }
    for (std::size_t i = 0; i < step_.num_ops(); ++i) {
      if (step_.once(op_id(i)) && (state.done & bit(op_id(i))) == 0) return false;
    }
    return true;
  }

  [[nodiscard]] std::int64_t bytes(std::uint32_t live) const {
    std::int64_t sum = 0;
    for (std::size_t v = 0; v < step_.num_values(); ++v)
      sum += (live & bit(value_id(v))) != 0 ? costs_.value_bytes[v] : 0;
    return sum;
  }

  // Frees, stores or fetches the value, if that is possible.
  void act_on(const State& state, ValueId v, std::int64_t time) {
    const std::int64_t size = costs_.value_bytes[index(v)];
    const bool live = (state.live & bit(v)) != 0;
    State next = state;
    if (live && !step_.pinned(v)) {
      next.live &= ~bit(v);
      const std::int64_t waits = std::max(state.storing[index(v)], state.coming[index(v)]);
      reach(after(next, waits), time + waits);
      if ((state.stored & bit(v)) != 0 || size == 0) return;
      next = state;
      next.stored |= bit(v);
      next.storing[index(v)] = next.down = ns(state.down + costs_.link->down_ns(size));
      if (!costs_.link->both_ways) next.up = next.down;
      reach(next, time);
    } else if (!live && (state.stored & bit(v)) != 0 && bytes(state.live) + size <= budget_) {
      next.live |= bit(v);
      next.coming[index(v)] = next.up = ns(std::max(state.up, state.storing[index(v)]) + costs_.link->up_ns(size));
      if (!costs_.link->both_ways) next.down = next.up;
      reach(next, time);
    }
  }

  [[nodiscard]] bool may_run(const State& state, OpId op) const {
    for (const ValueId v : step_.inputs(op)) {
      if ((state.live & bit(v)) == 0) return false;
    }
    if (step_.once(op)) {
      if ((state.done & bit(op)) != 0) return false;
      for (std::size_t i = 0; i < index(op); ++i) {
        if (step_.once(op_id(i)) && (state.done & bit(op_id(i))) == 0) return false;
      }
    }
    if (step_.phase(op) != Phase::kBackward || (state.done & bit(op)) != 0) return true;
    return (state.done & later_[index(op)]) == 0 && (state.done & bit(step_.caller_op())) != 0;
  }

  void compute(const State& state, OpId op, bool in_place, std::int64_t time) {
    State next = state;
    std::int64_t waits = 0;
    std::int64_t during = bytes(state.live) + costs_.workspace_bytes[index(op)];
    bool overwrites = false;
    for (const ValueId v : step_.inputs(op)) waits = std::max<std::int64_t>(waits, state.coming[index(v)]);
    for (const ValueId v : step_.outputs(op)) {
      const ValueId old = in_place ? step_.overwrites(v) : kNoValue;
      if (old == kNoValue) {
        during += costs_.value_bytes[index(v)];
      } else {
        if ((state.live & bit(v)) != 0) return;
        overwrites = true;
        waits = std::max<std::int64_t>(waits, state.storing[index(old)]);
        next.live &= ~bit(old);
      }
    }
    if ((in_place && !overwrites) || during > budget_) return;
    for (const ValueId v : step_.outputs(op)) next.live |= bit(v);
    if (step_.once(op) || step_.phase(op) == Phase::kBackward) next.done |= bit(op);
    const std::int64_t passes = waits + costs_.time_ns[index(op)];
    reach(after(next, passes), time + passes);
  }

  static State after(State state, std::int64_t passes) {
    const auto less = [passes](Ns& time) { time = ns(std::max<std::int64_t>(0, time - passes)); };
    less(state.down);
    less(state.up);
    std::ranges::for_each(state.storing, less);
    std::ranges::for_each(state.coming, less);
    return state;
  }

  void reach(const State& state, std::int64_t time) {
    const auto [it, is_new] = best_.try_emplace(state, time);
    if (!is_new && it->second <= time) return;
    it->second = time;
    open_.emplace(time, &*it);
  }

  using Best = std::unordered_map<State, std::int64_t, HashOfBytes>;
  struct Entry {
    std::int64_t time;
    const Best::value_type* at;
    friend bool operator>(const Entry& a, const Entry& b) { return a.time > b.time; }
  };
  const Graph& step_;
  const Costs& costs_;
  std::int64_t budget_;
  std::vector<std::uint32_t> later_;  // for each op, those whose first run must come after it
  Best best_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

}  // namespace

std::optional<std::int64_t> least_copying_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes,
                                               std::span<const OpId> order) {
  return Search(step, costs, budget_bytes, order).run();
}

}  // namespace reprise::test
