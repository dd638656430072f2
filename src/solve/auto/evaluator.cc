#include "solve/auto/evaluator.h"

#include <algorithm>

namespace reprise::detail {

Choice plain_choice(const StepModel& model) {
  return {.labels = ByValue<Label>(model.num_values(), Label::kKeep), .order = model.captured_order};
}

std::size_t most_runs(const StepModel& model) { return 6 * model.num_ops() + 64; }

Choice choice_of(const StepModel& model, const Plan& plan) {
  Choice choice{.labels = ByValue<Label>(model.num_values(), Label::kKeep), .order = {}};
  ByOp<std::uint32_t> runs(model.num_ops(), 0);
  for (const Action& action : plan.actions) {
    if (!action.computes()) continue;
    const OpId op = action.op();
    if (runs[op]++ == 0 && op > model.caller) choice.order.push_back(op);
  }
  for (const ValueId v : model.droppable_values) {
    const std::uint32_t again = runs[model.producer[v]];
    if (again > 1) choice.labels[v] = again == 2 ? Label::kHold : Label::kDiscard;
  }
  return choice;
}

Evaluator::Evaluator(const StepModel& model)
    : model_(model), most_runs_(most_runs(model)), maker_(model), scan_(model) {}

Cost Evaluator::evaluate(const Choice& choice, std::int64_t limit_bytes) {
  if (!make_runs(choice)) return {};
  return scan(limit_bytes);
}

bool Evaluator::make_runs(const Choice& choice) {
  std::vector<Run>& runs = maker_.runs;
  runs.clear();
  turn_end_.clear();
  reruns_.assign(model_.num_ops(), 0);
  first_rerun_.resize(model_.num_ops());
  maker_.again_ns = 0;
  maker_.presence.assign(model_.num_values(), Presence::kPresent);
  for (const ValueId v : model_.droppable_values) maker_.presence[v] = after_forward(choice.labels[v]);
  for (OpId op{0}; op <= model_.caller; ++op) runs.push_back({op, false});
  turn_end_.push_back(static_cast<std::uint32_t>(runs.size()));
  for (const OpId op : choice.order) {
    maker_.turn(op, choice.labels);
    for (std::size_t i = turn_end_.back(); i + 1 < runs.size(); ++i) {
      if (reruns_[runs[i].op]++ == 0) first_rerun_[runs[i].op] = static_cast<std::uint32_t>(turn_end_.size());
    }
    turn_end_.push_back(static_cast<std::uint32_t>(runs.size()));
    if (runs.size() > most_runs_ || maker_.again_ns > kMostTime) return false;
  }
  return true;
}

Cost Evaluator::scan(std::int64_t limit_bytes) {
  scan_.begin_at_end();
  profile_.assign(turn_end_.size(), 0);
  Cost cost{.peak_bytes = model_.start_bytes, .time_ns = model_.step_time_ns + maker_.again_ns};
  for (std::size_t turn = turn_end_.size(), i = maker_.runs.size(); turn-- > 0;) {
    const std::size_t begin = turn == 0 ? 0 : turn_end_[turn - 1];
    std::int64_t highest = 0;
    while (i > begin) {
      const Run run = maker_.runs[--i];
      highest = std::max(highest, scan_.visit(run));
      work_ += 2 + model_.inputs(run.op).size();
    }
    profile_[turn] = highest;
    cost.peak_bytes = std::max(cost.peak_bytes, highest);
    if (cost.peak_bytes > limit_bytes) return {};
  }
  cost.peak_bytes += scan_.not_riding;
  return cost;
}

std::vector<OpId> Evaluator::runs() const {
  std::vector<OpId> ops;
  ops.reserve(maker_.runs.size());
  for (const Run& run : maker_.runs) ops.push_back(run.op);
  return ops;
}

}  // namespace reprise::detail
