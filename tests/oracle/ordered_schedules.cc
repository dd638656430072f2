#include "oracle/ordered_schedules.h"

#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise::test {
namespace {

using State = std::uint64_t;  // bit v: value v is live; bit 20 + i: op i, which is `once` or backward, has run
constexpr unsigned kOps = 20;

class Search {
 public:
  // `order` is the order of the backward ops; if it is empty, any order is allowed.
  Search(const Graph& step, const Costs& costs, std::int64_t budget, std::span<const OpId> order)
      : step_(step), costs_(costs), budget_(budget), later_(step.num_ops(), 0), any_order_(order.empty()) {
    State later = 0;
    for (std::size_t i = order.size(); i-- > 0;) {
      later_[index(order[i])] = later;
      later |= bit(order[i]);
    }
    for (std::size_t v = 0; v < step.num_values(); ++v) {
      if (step.residence(value_id(v)) != Residence::kPlanned) start_ |= bit(value_id(v));
    }
    for (const ValueId v : step.step_outputs()) goal_ |= bit(v);
    for (std::size_t i = 0; i < step.num_ops(); ++i) {
      if (step.once(op_id(i))) goal_ |= bit(op_id(i));
    }
  }

  std::optional<std::int64_t> run() {
    if (bytes(start_) > budget_) return std::nullopt;
    reach(start_, 0);
    while (!open_.empty()) {
      const auto [time, state] = open_.top();
      open_.pop();
      if ((state & goal_) == goal_) return time;
      if (time > best_[state]) continue;
      for (std::size_t v = 0; v < step_.num_values(); ++v) {
        if ((state & bit(value_id(v))) != 0 && !step_.pinned(value_id(v))) reach(state & ~bit(value_id(v)), time);
      }
      for (std::size_t i = 0; i < step_.num_ops(); ++i) {
        if (may_run(state, op_id(i))) compute(state, op_id(i), time);
      }
    }
    return std::nullopt;
  }

 private:
  static State bit(ValueId v) { return State{1} << index(v); }
  static State bit(OpId op) { return State{1} << (kOps + index(op)); }

  [[nodiscard]] std::int64_t bytes(State state) const {
    std::int64_t sum = 0;
    for (std::size_t v = 0; v < step_.num_values(); ++v)
      sum += (state & bit(value_id(v))) != 0 ? costs_.value_bytes[v] : 0;
    return sum;
  }

  [[nodiscard]] bool may_run(State state, OpId op) const {
    for (const ValueId v : step_.inputs(op)) {
      if ((state & bit(v)) == 0) return false;
    }
    if (step_.once(op)) {
      if ((state & bit(op)) != 0) return false;
      for (std::size_t i = 0; i < index(op); ++i) {
        if (step_.once(op_id(i)) && (state & bit(op_id(i))) == 0) return false;
      }
    }
    if (any_order_ || step_.phase(op) != Phase::kBackward || (state & bit(op)) != 0) return true;
    return (state & later_[index(op)]) == 0 && (state & bit(step_.caller_op())) != 0;
  }

  void compute(State state, OpId op, std::int64_t time) {
    const bool remembered = step_.once(op) || step_.phase(op) == Phase::kBackward;
    State made = remembered ? bit(op) : 0;
    State replaced = 0;
    std::int64_t fresh = costs_.workspace_bytes[index(op)];
    std::int64_t in_place = costs_.workspace_bytes[index(op)];
    for (const ValueId v : step_.outputs(op)) {
      made |= bit(v);
      fresh += costs_.value_bytes[index(v)];
      if (step_.overwrites(v) == kNoValue) {
        in_place += costs_.value_bytes[index(v)];
      } else {
        replaced |= bit(step_.overwrites(v));
      }
    }
    const std::int64_t live = bytes(state);
    if (live + fresh <= budget_) reach(state | made, time + costs_.time_ns[index(op)]);
    if (replaced != 0 && live + in_place <= budget_)
      reach((state & ~replaced) | made, time + costs_.time_ns[index(op)]);
  }

  void reach(State state, std::int64_t time) {
    const auto [it, is_new] = best_.try_emplace(state, time);
    if (!is_new && it->second <= time) return;
    it->second = time;
    open_.emplace(time, state);
  }

  using Entry = std::pair<std::int64_t, State>;
  const Graph& step_;
  const Costs& costs_;
  std::int64_t budget_;
  std::vector<State> later_;  // for each op, those whose first run must come after it
  bool any_order_;
  State start_ = 0;
  State goal_ = 0;
  std::unordered_map<State, std::int64_t> best_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

}  // namespace

std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes,
                                       BackwardOrder order) {
  std::vector<OpId> captured;
  for (std::size_t i = 0; i < step.num_ops() && order == BackwardOrder::kCaptured; ++i) {
    if (step.phase(op_id(i)) == Phase::kBackward) captured.push_back(op_id(i));
  }
  return least_time(step, costs, budget_bytes, captured);
}

std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes,
                                       std::span<const OpId> order) {
  return Search(step, costs, budget_bytes, order).run();
}

}  // namespace reprise::test
