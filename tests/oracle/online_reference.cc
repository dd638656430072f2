#include "oracle/online_reference.h"

#include <algorithm>
#include <map>
#include <set>

namespace reprise::test {
namespace {

class Reference {
 public:
  Reference(const CostedGraph& step, const OnlineQuestion& question)
      : graph_(step.graph), costs_(step.costs), question_(question) {}

  std::optional<std::vector<OpId>> runs() {
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      const ValueId v = value_id(i);
      if (graph_.residence(v) == Residence::kPlanned) continue;
      present_.insert(v);
      if (graph_.pinned(v)) pinned_.insert(v);
    }
    if (live_bytes() > question_.budget_bytes) return std::nullopt;
    for (const ValueId v : std::set<ValueId>(present_)) {
      if (graph_.readers(v).empty() && !graph_.is_output(v)) drop(v);
    }
    for (now_ = 0; now_ < graph_.num_ops(); ++now_) {
      if (!run(op_id(now_))) return std::nullopt;
      for (std::size_t i = 0; i < graph_.num_values(); ++i) {
        const ValueId v = value_id(i);
        if (present_.contains(v) && (evictable(v) ? last_read(v) : last_need(v)) == now_) drop(v);
      }
    }
    for (const ValueId v : graph_.step_outputs()) locked_.insert(v);
    for (const ValueId v : graph_.step_outputs()) {
      if (!present_.contains(v) && !run(graph_.producer(v))) return std::nullopt;
    }
    return runs_;
  }

 private:
  std::int64_t bytes(ValueId v) const { return costs_.value_bytes[index(v)]; }
  double cost(ValueId v) const { return static_cast<double>(costs_.time_ns[index(graph_.producer(v))]); }

  std::int64_t live_bytes() const {
    std::int64_t sum = 0;
    for (const ValueId v : present_) sum += bytes(v);
    return sum;
  }

  bool from_caller(OpId op) const {
    if (op == graph_.caller_op()) return true;
    return std::ranges::any_of(
        graph_.inputs(op), [&](ValueId v) { return graph_.producer(v) != kNoOp && from_caller(graph_.producer(v)); });
  }
  bool in_pinned_memory(ValueId v) const {
    return graph_.pinned(v) || (graph_.overwrites(v) != kNoValue && in_pinned_memory(graph_.overwrites(v)));
  }
  bool evictable(ValueId v) const {
    const OpId op = graph_.producer(v);
    return op != kNoOp && !graph_.once(op) && !from_caller(op) && !in_pinned_memory(v);
  }

  std::size_t last_read(ValueId v) const {
    if (graph_.is_output(v)) return graph_.num_ops() + 1;
    std::size_t last = graph_.producer(v) == kNoOp ? 0 : index(graph_.producer(v));
    for (const OpId reader : graph_.readers(v)) last = std::max(last, index(reader));
    return last;
  }
  // By the program, or to compute something again.
  std::size_t last_need(ValueId v) const {
    std::size_t last = last_read(v);
    for (const OpId reader : graph_.readers(v)) {
      for (const ValueId made : graph_.outputs(reader)) {
        if (evictable(made)) last = std::max(last, last_need(made));
      }
    }
    return last;
  }

  bool run(OpId op) {
    const std::vector<ValueId> inputs(graph_.inputs(op).begin(), graph_.inputs(op).end());
    for (const ValueId v : inputs) locked_.insert(v);
    while (const std::optional<OpId> missing = missing_input(op)) {
      if (!run(*missing)) return false;
    }
    const bool in_place = overwrites_in_place(op);
    std::int64_t fresh = costs_.workspace_bytes[index(op)];
    for (const ValueId v : graph_.outputs(op)) {
      if (!in_place || graph_.overwrites(v) == kNoValue) fresh += bytes(v);
    }
    while (live_bytes() + fresh > question_.budget_bytes) {
      const std::optional<ValueId> victim = least_h();
      if (!victim) return false;
      drop(*victim);
    }
    if (runs_.size() >= 8 * graph_.num_ops() + 64) return false;
    const bool first = std::ranges::find(runs_, op) == runs_.end();
    runs_.push_back(op);
    clock_ += costs_.time_ns[index(op)];
    for (const ValueId v : inputs) locked_.erase(locked_.find(v));
    for (const ValueId v : inputs) {
      if (first) used_[v] = clock_;
    }
    for (const ValueId v : graph_.outputs(op)) finish(v, first, in_place);
    return true;
  }

  void finish(ValueId v, bool first, bool in_place) {
    const ValueId old = graph_.overwrites(v);
    if (in_place && old != kNoValue) {
      const bool pinned = pinned_.erase(old) > 0;
      drop(old);
      if (pinned) pinned_.insert(v);
    }
    if (first && graph_.held(v)) pinned_.insert(v);
    if (first) used_[v] = clock_;
    if (!first && !evictable(v)) return;
    label_.erase(v);
    present_.insert(v);
  }

  std::optional<OpId> missing_input(OpId op) const {
    std::optional<OpId> found;
    for (const ValueId v : graph_.inputs(op)) {
      if (present_.contains(v)) continue;
      if (!found || (question_.oldest_first && graph_.producer(v) < *found)) found = graph_.producer(v);
    }
    return found;
  }

  bool overwrites_in_place(OpId op) const {
    bool any = false;
    for (const ValueId v : graph_.outputs(op)) {
      const ValueId old = graph_.overwrites(v);
      if (old == kNoValue) continue;
      any = true;
      if (present_.contains(v) || locked_.count(old) > 1) return false;
      if (evictable(old) ? last_read(old) > now_ : index(op) != now_ || last_need(old) > now_) return false;
    }
    return any;
  }

  // Ties go to the smaller id.
  std::optional<ValueId> least_h() {
    std::optional<std::tuple<bool, double, ValueId>> best;
    for (const ValueId v : present_) {
      if (!evictable(v) || locked_.contains(v) || bytes(v) == 0) continue;
      const bool held = !question_.ghosts_first || last_read(v) > now_;
      const double age = static_cast<double>(std::max<std::int64_t>(1, clock_ - used_[v]));
      const std::tuple<bool, double, ValueId> key{held, neighbourhood_cost(v) / static_cast<double>(bytes(v)) / age, v};
      if (!best || key < *best) best = key;
    }
    if (!best) return std::nullopt;
    return std::get<2>(*best);
  }

  bool are_neighbours(ValueId v, ValueId w) const {
    const auto reads = [&](ValueId made, ValueId read) {
      const auto inputs = graph_.inputs(graph_.producer(made));
      return std::ranges::find(inputs, read) != inputs.end();
    };
    return reads(v, w) || reads(w, v);
  }

  double neighbourhood_cost(ValueId v) const {
    std::set<int> labels;
    for (const auto& [absent, label] : label_) {
      if (are_neighbours(v, absent)) labels.insert(label);
    }
    double sum = cost(v);
    for (const auto& [absent, label] : label_) sum += labels.contains(label) ? cost(absent) : 0;
    return sum;
  }

  void drop(ValueId v) {
    if (pinned_.contains(v)) return;
    present_.erase(v);
    if (!evictable(v)) return;
    const int own = next_label_++;
    std::set<int> met;
    for (const auto& [absent, label] : label_) {
      if (are_neighbours(v, absent)) met.insert(label);
    }
    for (auto& [absent, label] : label_) label = met.contains(label) ? own : label;
    label_[v] = own;
  }

  const Graph& graph_;
  const Costs& costs_;
  OnlineQuestion question_;
  std::size_t now_ = 0;
  std::int64_t clock_ = 0;
  std::vector<OpId> runs_;
  std::set<ValueId> present_;
  std::set<ValueId> pinned_;
  std::multiset<ValueId> locked_;
  std::map<ValueId, std::int64_t> used_;
  std::map<ValueId, int> label_;  // of what is absent: its component
  int next_label_ = 0;
};

}  // namespace

std::optional<std::vector<OpId>> online_runs(const CostedGraph& step, const OnlineQuestion& question) {
  return Reference(step, question).runs();
}

}  // namespace reprise::test
