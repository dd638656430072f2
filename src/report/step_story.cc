#include "report/step_story.h"

#include <algorithm>

#include "reprise/error.h"
#include "reprise/lives.h"

namespace reprise::detail {
namespace {

constexpr std::size_t kNever = static_cast<std::size_t>(-1);

// Runs in order, with the memory of the timeline; what was away and what crosses to backward is read off the lives.
class Teller {
 public:
  Teller(const Graph& graph, const Costs& costs, const Plan& plan)
      : graph_(graph),
        costs_(costs),
        plan_(plan),
        times_(timeline(graph, costs, plan)),
        lives_(lives(graph, plan)),
        runs_(graph.num_ops(), 0),
        of_op_(graph.num_ops(), kNever) {}

  StepStory tell() && {
    story_.total = times_.total;
    story_.start_bytes = times_.start_bytes;
    story_.live_at_peak = times_.live_at_peak;
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      if (plan_.actions[i].computes()) {
        const OpId op = plan_.actions[i].op();
        if (!graph_.is_start(op)) device_ns_ = times_.begin_ns[i];
        note_run(op, i);
        if (!graph_.is_start(op)) device_ns_ = times_.end_ns[i];
        continue;
      }
      if (plan_.actions[i].frees()) device_ns_ = times_.end_ns[i];
      if (!story_.runs.empty()) {
        story_.runs.back().after_bytes = times_.after_bytes[i];
      }
    }
    note_gaps();
    std::ranges::sort(story_.recomputed, {}, [](const Recomputed& r) { return index(r.op); });
    return std::move(story_);
  }

 private:
  void note_run(OpId op, std::size_t at) {
    if (op == graph_.caller_op()) note_caller(at);
    if (at == times_.peak_action) story_.peak_run = story_.runs.size();
    const bool again = runs_[index(op)]++ != 0;
    story_.runs.push_back({op, again, at, device_ns_, times_.during_bytes[at], times_.after_bytes[at]});
    if (!again) {
      story_.reordered = story_.reordered || index(op) < latest_first_;
      latest_first_ = index(op);
      return;
    }
    Recomputed& choice = choice_of(op);
    ++choice.runs;
    choice.cost_ns += costs_.time_ns[index(op)];
  }

  // Notes results that are made again after they were freed: if a result had been kept, every instant in between would
  // be higher by its bytes.
  void note_gaps() {
    std::vector<std::size_t> away_since(graph_.num_values(), kNever);
    for (const Life& life : lives_) {
      std::size_t& since = away_since[index(life.value)];
      if (life.second_copy) continue;
      if (since != kNever && plan_.actions[*life.first].computes()) {
        const auto at = [&](std::size_t i) { return times_.during_bytes.begin() + static_cast<std::ptrdiff_t>(i); };
        const std::int64_t highest = *std::max_element(at(since), at(*life.first + 1));
        std::int64_t& peak = choice_of(graph_.producer(life.value)).peak_if_kept_bytes;
        peak = std::max(peak, highest + costs_.value_bytes[index(life.value)]);
      }
      since = life.last.value_or(kNever);
    }
  }

  Recomputed& choice_of(OpId op) {
    std::size_t& at = of_op_[index(op)];
    if (at == kNever) {
      at = story_.recomputed.size();
      story_.recomputed.push_back({.op = op, .peak_if_kept_bytes = times_.total.peak_bytes});
    }
    return story_.recomputed[at];
  }

  void note_caller(std::size_t at) {
    for (const Life& life : lives_) {
      const bool crosses = life.first && *life.first < at && life.last.value_or(kNever) >= at;
      if (crosses && !graph_.held(life.value)) story_.live_at_caller.push_back(life.value);
    }
    std::ranges::sort(story_.live_at_caller);
  }

  const Graph& graph_;
  const Costs& costs_;
  const Plan& plan_;
  const Timeline times_;
  const Lives lives_;
  StepStory story_;
  std::vector<std::uint32_t> runs_;
  std::int64_t device_ns_ = 0;
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
