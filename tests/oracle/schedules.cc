#include "oracle/schedules.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

namespace reprise::test {
namespace {

using State = std::uint32_t;  // bit v: value v is live
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

State bit(ValueId v) { return State{1} << index(v); }

struct Move {
  State to;
  std::int64_t peak;  // the memory during the move
  std::int64_t time;
};

class Schedules {
 public:
  Schedules(const Graph& step, const Costs& costs)
      : step_(step), costs_(costs), bytes_(std::size_t{1} << step.num_values(), 0) {
    for (State s = 0; s < bytes_.size(); ++s) {
      for (std::size_t v = 0; v < step.num_values(); ++v) bytes_[s] += (s >> v & 1U) != 0 ? costs.value_bytes[v] : 0;
    }
    for (const ValueId v : step.step_outputs()) goal_ |= bit(v);
  }

  // The length of the shortest path to the outputs; `longer(so far, move)` is the length of a path after one more move.
  [[nodiscard]] std::int64_t shortest(const std::function<std::int64_t(std::int64_t, const Move&)>& longer) const {
    using Entry = std::pair<std::int64_t, State>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    std::vector<std::int64_t> best(bytes_.size(), kNever);
    best[0] = 0;
    open.emplace(0, 0);
    while (!open.empty()) {
      const auto [length, state] = open.top();
      open.pop();
      if ((state & goal_) == goal_) return length;
      if (length > best[state]) continue;
      for (const Move& move : moves(state)) {
        const std::int64_t total = longer(length, move);
        if (total >= best[move.to]) continue;
        best[move.to] = total;
        open.emplace(total, move.to);
      }
    }
    return kNever;
  }

 private:
  [[nodiscard]] std::vector<Move> moves(State state) const {
    std::vector<Move> found;
    for (std::size_t v = 0; v < step_.num_values(); ++v) {
      if ((state & bit(value_id(v))) != 0) found.push_back({state & ~bit(value_id(v)), bytes_[state], 0});
    }
    for (std::size_t i = 0; i < step_.num_ops(); ++i) {
      if (op_id(i) != step_.caller_op()) add_computes(state, op_id(i), found);
    }
    return found;
  }

  void add_computes(State state, OpId op, std::vector<Move>& found) const {
    for (const ValueId v : step_.inputs(op)) {
      if ((state & bit(v)) == 0) return;
    }
    State made = 0;
    State replaced = 0;
    for (const ValueId v : step_.outputs(op)) {
      made |= bit(v);
      if (step_.overwrites(v) != kNoValue) replaced |= bit(step_.overwrites(v));
    }
    if ((state & made) != 0) return;  // A second copy of a value never helps.
    const std::int64_t time = costs_.time_ns[index(op)];
    found.push_back({state | made, bytes_[state] + bytes_[made] + costs_.workspace_bytes[index(op)], time});
    if (replaced == 0) return;
    const State after = (state & ~replaced) | made;
    found.push_back({after, std::max(bytes_[state], bytes_[after]) + costs_.workspace_bytes[index(op)], time});
  }

  const Graph& step_;
  const Costs& costs_;
  std::vector<std::int64_t> bytes_;  // the live bytes in each state
  State goal_ = 0;
};

}  // namespace

std::int64_t smallest_peak(const Graph& step, const Costs& costs) {
  return Schedules(step, costs).shortest([](std::int64_t peak, const Move& move) { return std::max(peak, move.peak); });
}

std::optional<std::int64_t> least_time(const Graph& step, const Costs& costs, std::int64_t budget_bytes) {
  const std::int64_t time = Schedules(step, costs).shortest([&](std::int64_t so_far, const Move& move) {
    return move.peak > budget_bytes ? kNever : so_far + move.time;
  });
  return time == kNever ? std::nullopt : std::optional(time);
}

}  // namespace reprise::test
