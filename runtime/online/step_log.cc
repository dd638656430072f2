#include "runtime/online/step_log.h"

#include <algorithm>
#include <utility>

#include "reprise/graph_builder.h"

namespace reprise::online {
namespace {

bool is_in_graph(const LoggedCall& call) { return !call.reads.empty() || !call.makes.empty(); }

// Adds the ops of a log, and before them what lies outside by then.
class Writer {
 public:
  Writer(const StepLog& log, std::int64_t grain_bytes)
      : log_(log), grain_bytes_(std::max<std::int64_t>(1, grain_bytes)) {}

  LogGraph write() {
    for (const std::int64_t bytes : log_.bytes) builder_.value(bytes);
    const std::int64_t always = least_outside();
    if (always > 0) builder_.resident(always * grain_bytes_);
    const std::size_t backward = begin_of_backward();
    bool in_backward = false;
    for (std::size_t i = 0; i < log_.calls.size(); ++i) {
      const LoggedCall& call = log_.calls[i];
      if (!is_in_graph(call)) continue;
      if (i >= backward && !std::exchange(in_backward, true)) add_caller();
      const Phase phase = in_backward ? Phase::kBackward : Phase::kForward;
      set_outside(grains(call) - always, phase);
      add(call, phase, static_cast<std::uint32_t>(i));
    }
    if (!in_backward) add_caller();
    for (const std::uint32_t value : log_.held) builder_.output(value_id(value));
    for (const ValueId grain : outside_) builder_.output(grain);
    return {builder_.build(), std::move(call_of_)};
  }

 private:
  [[nodiscard]] std::int64_t grains(const LoggedCall& call) const {
    // One more, because a few bytes come and go from step to step.
    return (std::max<std::int64_t>(0, call.outside_bytes) + grain_bytes_ - 1) / grain_bytes_ + 1;
  }
  [[nodiscard]] std::int64_t least_outside() const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const LoggedCall& call : log_.calls) {
      if (is_in_graph(call)) least = std::min(least, grains(call));
    }
    return least == std::numeric_limits<std::int64_t>::max() ? 0 : least;
  }
  [[nodiscard]] std::size_t begin_of_backward() const {
    const auto in_pass = [](const LoggedCall& call) { return call.pass != -1; };
    const auto last = std::find_if(log_.calls.rbegin(), log_.calls.rend(), in_pass);
    if (last == log_.calls.rend()) return log_.calls.size();
    return static_cast<std::size_t>(std::ranges::find(log_.calls, last->pass, &LoggedCall::pass) - log_.calls.begin());
  }
  void add_op(OpSpec spec, std::uint32_t call) {
    builder_.op(std::move(spec));
    call_of_.push_back(call);
  }
  void add_caller() { add_op({.name = "caller", .phase = Phase::kCaller}, kNothing); }
  // A fall of one grain is left out, so that a level between two grains does not make an op of every call.
  void set_outside(std::int64_t grains, Phase phase) {
    OpSpec change{.name = "outside", .phase = phase, .once = true};
    while (static_cast<std::int64_t>(outside_.size()) < grains) {
      outside_.push_back(builder_.value(grain_bytes_));
      change.outputs.push_back(outside_.back());
    }
    while (static_cast<std::int64_t>(outside_.size()) > grains + (change.inputs.empty() ? 1 : 0)) {
      change.inputs.push_back(outside_.back());
      outside_.pop_back();
    }
    if (!change.inputs.empty() || !change.outputs.empty()) add_op(std::move(change), kNothing);
  }
  // Backward ops run once, in the order in which they ran: the program decides on it, not the plan.
  void add(const LoggedCall& call, Phase phase, std::uint32_t number) {
    OpSpec spec{.name = call.name,
                .phase = phase,
                .time_ns = call.cost_ns,
                .workspace_bytes = call.own_bytes,
                .once = phase == Phase::kBackward || !call.repeatable};
    for (const std::uint32_t value : call.reads) spec.inputs.push_back(value_id(value));
    for (const LoggedCall::Made& made : call.makes) spec.outputs.push_back(value_id(made.value));
    add_op(std::move(spec), number);
    for (const LoggedCall::Made& made : call.makes) {
      if (made.over != kNothing) builder_.overwrite(value_id(made.value), value_id(made.over));
    }
  }

  const StepLog& log_;
  std::int64_t grain_bytes_;
  GraphBuilder builder_{"a step that ran online"};
  std::vector<std::uint32_t> call_of_;
  std::vector<ValueId> outside_;
};

}  // namespace

LogGraph graph_of(const StepLog& log, std::int64_t grain_bytes) { return Writer(log, grain_bytes).write(); }

}  // namespace reprise::online
