#include "report/step_story.h"

#include <algorithm>

#include "reprise/error.h"

namespace reprise::detail {
namespace {

constexpr std::size_t kNever = static_cast<std::size_t>(-1);

// Replays a plan for the lives of its values; memory is the timeline's.
class Teller {
 public:
  Teller(const Graph& graph, const Costs& costs, const Plan& plan)
      : graph_(graph),
        costs_(costs),
        plan_(plan),
        times_(timeline(graph, costs, plan)),
        live_(graph.num_values(), 0),
        died_(graph.num_values(), kNever),
        runs_(graph.num_ops(), 0),
        of_op_(graph.num_ops(), kNever) {
    for (std::size_t i = 0; i < graph.num_values(); ++i) live_[i] = graph.residence(value_id(i)) != Residence::kPlanned;
  }

  StepStory tell() && {
    story_.total = times_.total;
    story_.start_bytes = times_.start_bytes;
    story_.live_at_peak = times_.live_at_peak;
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      const Action action = plan_.actions[i];
      switch (action.kind()) {
        case Action::Kind::kCompute:
          run(action.op(), /*in_place=*/false, i);
          break;
        case Action::Kind::kComputeInPlace:
          run(action.op(), /*in_place=*/true, i);
          break;
        case Action::Kind::kFree:
          end_life(action.value(), i);
          if (!story_.runs.empty()) story_.runs.back().after_bytes = times_.after_bytes[i];
          break;
      }
    }
    std::ranges::sort(story_.recomputed, {}, [](const Recomputed& r) { return index(r.op); });
    return std::move(story_);
  }

 private:
  void run(OpId op, bool in_place, std::size_t at) {
    if (op == graph_.caller_op()) note_caller();
    if (at == times_.peak_action) story_.peak_run = story_.runs.size();
    const bool again = runs_[index(op)]++ != 0;
    if (!again) {
      story_.reordered = story_.reordered || index(op) < latest_first_;
      latest_first_ = index(op);
    }
    story_.runs.push_back({op, again, at, times_.during_bytes[at], times_.after_bytes[at]});
    Recomputed* choice = again ? &choice_of(op) : nullptr;
    if (choice != nullptr) {
      ++choice->runs;
      choice->cost_ns += costs_.time_ns[index(op)];
    }
    for (const ValueId v : graph_.outputs(op)) {
      if (in_place && graph_.overwrites(v) != kNoValue) end_life(graph_.overwrites(v), at);
      if (choice != nullptr && live_[index(v)] == 0) note_gap(*choice, v, at);
      live_[index(v)] = 1;
    }
  }

  void end_life(ValueId v, std::size_t at) {
    live_[index(v)] = 0;
    died_[index(v)] = at;
  }

  // A result lives again that was away since died_: had it been kept, every instant between would be that much higher.
  void note_gap(Recomputed& choice, ValueId v, std::size_t at) {
    const std::size_t since = died_[index(v)];
    if (since == kNever) return;
    const auto begin = times_.during_bytes.begin();
    const auto highest =
        std::max_element(begin + static_cast<std::ptrdiff_t>(since), begin + static_cast<std::ptrdiff_t>(at) + 1);
    choice.peak_if_kept_bytes = std::max(choice.peak_if_kept_bytes, *highest + costs_.value_bytes[index(v)]);
  }

  Recomputed& choice_of(OpId op) {
    std::size_t& at = of_op_[index(op)];
    if (at == kNever) {
      at = story_.recomputed.size();
      story_.recomputed.push_back({.op = op, .peak_if_kept_bytes = times_.total.peak_bytes});
    }
    return story_.recomputed[at];
  }

  void note_caller() {
    for (std::size_t i = 0; i < live_.size(); ++i) {
      const ValueId v = value_id(i);
      if (live_[i] != 0 && graph_.producer(v) != kNoOp && !graph_.held(v)) story_.live_at_caller.push_back(v);
    }
  }

  const Graph& graph_;
  const Costs& costs_;
  const Plan& plan_;
  const Timeline times_;
  StepStory story_;
  std::vector<std::uint8_t> live_;
  std::vector<std::size_t> died_;  // by value: the action that ended its latest life
  std::vector<std::uint32_t> runs_;
  std::size_t latest_first_ = 0;    // op that ran for the first time last
  std::vector<std::size_t> of_op_;  // by op: its entry in story_.recomputed
};

}  // namespace

StepStory tell(const Graph& graph, const Costs& costs, const Plan& plan) { return Teller(graph, costs, plan).tell(); }

void check_measured(const ReportInput& input) {
  const std::size_t actions = input.plan.actions.size();
  if (!input.measured) return;
  if (input.measured->during_bytes.size() == actions && input.measured->after_bytes.size() == actions) return;
  throw InputError("a measured step of " + std::to_string(input.measured->during_bytes.size()) + " and " +
                   std::to_string(input.measured->after_bytes.size()) + " amounts for a plan of " +
                   std::to_string(actions) + " actions");
}

std::string_view module_name(const Graph& graph, OpId op) {
  return graph.scopes().empty() ? std::string_view(graph.op_name(op)) : graph.scope_name(op);
}

std::string_view kind_name(const Graph& graph, OpId op) {
  const std::string_view name = graph.op_name(op);
  if (graph.scopes().empty()) return name;
  const std::size_t digits = name.find_last_not_of("0123456789");
  if (digits == std::string_view::npos || digits == 0 || digits + 1 == name.size() || name[digits] != '_') return name;
  return name.substr(0, digits);
}

OpId known_by(const Graph& graph, ValueId value) {
  if (graph.producer(value) != kNoOp) return graph.producer(value);
  return graph.readers(value).empty() ? kNoOp : graph.readers(value).front();
}

}  // namespace reprise::detail
