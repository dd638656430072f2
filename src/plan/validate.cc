#include "reprise/validate.h"

#include <algorithm>
#include <deque>
#include <set>

namespace reprise {
namespace {

// Replays the plan with a set of live values and nothing clever. Each rule of validate.h is one function.
class Replay {
 public:
  explicit Replay(const Graph& graph) : graph_(graph) {
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      const ValueId v = value_id(i);
      if (graph.residence(v) == Residence::kPlanned) continue;
      live_.insert(v);
      if (graph.pinned(v)) pinned_memory_.insert(v);
    }
    for (std::size_t i = 0; i < graph.num_ops(); ++i) {
      if (!graph.once(op_id(i))) continue;
      if (graph.partner(op_id(i)) == kNoOp) {
        pending_once_.push_back(op_id(i));
      } else {
        pending_collectives_.insert(op_id(i));
      }
    }
  }

  // What is wrong with the action, or "".
  std::string take(const Action& action) {
    switch (action.kind()) {
      case Action::Kind::kCompute:
        return compute(action.op(), /*in_place=*/false);
      case Action::Kind::kComputeInPlace:
        return compute(action.op(), /*in_place=*/true);
      case Action::Kind::kFree:
        return free(action.value());
      case Action::Kind::kStore:
        return store(action.value());
      case Action::Kind::kFetch:
        return fetch(action.value());
    }
    return "is of an unknown kind";
  }

  [[nodiscard]] std::string end() const {
    for (const ValueId v : graph_.step_outputs()) {
      if (!live_.contains(v)) return "step output " + text(v) + " is not live at the end";
    }
    if (!flying_.empty()) return text(*flying_.begin()) + " is never waited for";
    const OpId missing = !pending_once_.empty()          ? pending_once_.front()
                         : !pending_collectives_.empty() ? *pending_collectives_.begin()
                                                         : kNoOp;
    return missing == kNoOp ? "" : text(missing) + " must run once and never does";
  }

 private:
  [[nodiscard]] std::string text(ValueId v) const { return "value " + std::to_string(index(v)); }
  [[nodiscard]] std::string text(OpId op) const {
    return "op " + std::to_string(index(op)) + " '" + graph_.op_name(op) + "'";
  }

  std::string free(ValueId v) {
    if (index(v) >= graph_.num_values()) return "frees unknown " + text(v);
    if (!live_.contains(v)) return "frees " + text(v) + ", which is not live";
    if (pinned_memory_.contains(v)) return "frees " + text(v) + ", whose memory is resident or held by the caller";
    if (const OpId start = flying_with(v); start != kNoOp) return "frees " + text(v) + needed_by(start);
    live_.erase(v);
    return "";
  }

  std::string store(ValueId v) {
    if (index(v) >= graph_.num_values()) return "stores unknown " + text(v);
    if (!live_.contains(v)) return "stores " + text(v) + ", which is not live";
    if (pinned_memory_.contains(v)) return "stores " + text(v) + ", whose memory is resident or held by the caller";
    if (graph_.in_flight(v)) return "stores " + text(v) + ", which is in flight";
    if (!stored_.insert(v).second) return "stores " + text(v) + ", which has been stored before";
    return "";
  }

  std::string fetch(ValueId v) {
    if (index(v) >= graph_.num_values()) return "fetches unknown " + text(v);
    if (!stored_.contains(v)) return "fetches " + text(v) + ", which has not been stored";
    if (!live_.insert(v).second) return "fetches " + text(v) + ", which is live";
    return "";
  }

  std::string compute(OpId op, bool in_place) {
    if (index(op) >= graph_.num_ops()) return "computes unknown " + text_unknown(op);
    const std::string what = "computes " + text(op);
    for (const ValueId v : graph_.inputs(op)) {
      if (!live_.contains(v)) return what + ", whose input " + text(v) + " is not live";
    }
    if (const std::string wrong = check_once(op); !wrong.empty()) return what + wrong;
    if (const std::string wrong = check_flights(op, in_place); !wrong.empty()) return what + wrong;
    if (in_place) {
      if (const std::string wrong = take_over(op); !wrong.empty()) return what + wrong;
    }
    for (const ValueId v : graph_.outputs(op)) {
      live_.insert(v);
      if (graph_.held(v)) pinned_memory_.insert(v);
    }
    return "";
  }

  static std::string text_unknown(OpId op) { return "op " + std::to_string(index(op)); }

  std::string check_once(OpId op) {
    if (!graph_.once(op)) return "";
    if (graph_.partner(op) != kNoOp) return pending_collectives_.erase(op) != 0 ? "" : ", which must not be repeated";
    if (pending_once_.empty() || pending_once_.front() > op) return ", which must not be repeated";
    if (pending_once_.front() < op) return " before " + text(pending_once_.front()) + ", which comes first";
    pending_once_.pop_front();
    return "";
  }

  // The op runs in place: the overwritten inputs are gone and their memory passes to the outputs.
  std::string take_over(OpId op) {
    bool any = false;
    for (const ValueId v : graph_.outputs(op)) {
      const ValueId old = graph_.overwrites(v);
      if (old == kNoValue) continue;
      any = true;
      if (live_.contains(v)) return " in place, but its output " + text(v) + " is still live";
      if (const OpId start = flying_with(old); start != kNoOp) return " in place over " + text(old) + needed_by(start);
      live_.erase(old);
      if (pinned_memory_.erase(old) != 0) {
        pinned_memory_.insert(v);
      } else {
        pinned_memory_.erase(v);
      }
    }
    return any ? "" : " in place, but none of its outputs overwrites an input";
  }

  // A start takes off, a wait lands, and everything has landed at the caller's op.
  std::string check_flights(OpId op, bool in_place) {
    if (op == graph_.caller_op() && !flying_.empty()) return " before the wait for " + text(*flying_.begin());
    if (graph_.is_start(op) && !flying_.insert(op).second) return ", whose last run has not been waited for";
    if (!graph_.is_wait(op)) return "";
    if (!in_place) return " into fresh memory, but waits run in place";
    flying_.erase(graph_.partner(op));
    return "";
  }

  // A start that has not been waited for, and that reads or makes the value; or kNoOp.
  [[nodiscard]] OpId flying_with(ValueId v) const {
    for (const OpId start : flying_) {
      for (const auto values : {graph_.inputs(start), graph_.outputs(start)}) {
        if (std::ranges::find(values, v) != values.end()) return start;
      }
    }
    return kNoOp;
  }
  [[nodiscard]] std::string needed_by(OpId start) const { return ", which " + text(start) + " has in flight"; }

  const Graph& graph_;
  std::set<ValueId> live_;
  std::set<ValueId> stored_;
  std::set<ValueId> pinned_memory_;     // live values that the plan may not free
  std::deque<OpId> pending_once_;       // in graph order, without the next
  std::set<OpId> pending_collectives_;  // starts and waits that are once
  std::set<OpId> flying_;               // starts that have not been waited for
};

}  // namespace

std::optional<Violation> validate(const Graph& graph, const Plan& plan) {
  Replay replay(graph);
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    std::string wrong = replay.take(plan.actions[i]);
    if (!wrong.empty()) return Violation{i, "action " + std::to_string(i) + ": " + wrong};
  }
  std::string wrong = replay.end();
  if (!wrong.empty()) return Violation{plan.actions.size(), wrong};
  return std::nullopt;
}

}  // namespace reprise
