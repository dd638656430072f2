#include "solve/auto/evaluator.h"

#include <algorithm>
#include <array>

namespace reprise::detail {
namespace {

// One demand adds less than the whole step: no sum comes near the range of an integer.
constexpr std::int64_t kMostTime = 4 * Graph::kMaxTotalTime;

}  // namespace

Choice plain_choice(const StepModel& model) {
  return {.labels = std::vector<Label>(model.num_values(), Label::kKeep), .order = model.captured_order};
}

Evaluator::Evaluator(const StepModel& model) : model_(model), most_runs_(std::size_t{6} * model.num_ops() + 64) {}

Cost Evaluator::evaluate(const Choice& choice, std::int64_t limit_bytes) {
  if (!make_runs(choice)) return {};
  return scan(limit_bytes);
}

bool Evaluator::make_runs(const Choice& choice) {
  runs_.clear();
  slot_end_.clear();
  reruns_.assign(model_.num_ops(), 0);
  first_rerun_.resize(model_.num_ops());
  time_ns_ = model_.step_time_ns;
  constexpr std::array<std::uint8_t, kLabels> kAfterForward{kPresent, kAbsent, kAbsent, kToRelease, kAbsent};
  present_.assign(model_.num_values(), kPresent);
  for (const std::uint32_t v : model_.droppable_values) {
    present_[v] = kAfterForward[static_cast<std::size_t>(choice.labels[v])];
  }
  for (std::uint32_t op = 0; op <= model_.caller; ++op) runs_.push_back({op, false});
  slot_end_.push_back(static_cast<std::uint32_t>(runs_.size()));
  for (const std::uint32_t op : choice.order) {
    for (const std::uint32_t v : model_.inputs(op)) {
      if (!read(v)) demand(model_.producer[v], choice);
    }
    runs_.push_back({op, false});
    slot_end_.push_back(static_cast<std::uint32_t>(runs_.size()));
    for (const std::uint32_t v : passing_) present_[v] = kAbsent;
    passing_.clear();
    if (runs_.size() > most_runs_ || time_ns_ > kMostTime) return false;
  }
  return true;
}

bool Evaluator::read(std::uint32_t value) {
  if (present_[value] != kToRelease) return present_[value] != kAbsent;
  present_[value] = kPresent;
  passing_.push_back(value);
  return true;
}

// Depth first, with a stack of its own: chains are as deep as networks.
void Evaluator::demand(std::uint32_t op, const Choice& choice) {
  stack_.push_back({op, model_.ops[op].inputs_begin});
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    const std::uint32_t end = model_.ops[top.op + 1].inputs_begin;
    while (top.next < end && read(model_.op_inputs[top.next])) ++top.next;
    if (top.next < end) {
      const std::uint32_t missing = model_.producer[model_.op_inputs[top.next]];
      stack_.push_back({missing, model_.ops[missing].inputs_begin});
    } else {
      run_again(top.op, choice);
      stack_.pop_back();
    }
  }
}

void Evaluator::run_again(std::uint32_t op, const Choice& choice) {
  runs_.push_back({op, true});
  if (reruns_[op]++ == 0) first_rerun_[op] = static_cast<std::uint32_t>(slot_end_.size());
  time_ns_ += model_.ops[op].time_ns;
  for (const std::uint32_t v : model_.outputs(op)) {
    if (present_[v] != kAbsent) continue;
    present_[v] = kPresent;
    const Label label = choice.labels[v];
    if (label == Label::kDiscard || (label == Label::kLater && reruns_[op] == 1)) passing_.push_back(v);
  }
}

// Scanning backwards: what the op may overwrite is not needed later.
bool Evaluator::runs_in_place(const Run& run) const {
  const StepModel::Op& op = model_.ops[run.op];
  if (!op.overwrites || (run.again && op.overwrites_pinned)) return false;
  return std::ranges::all_of(model_.outputs(run.op), [&](std::uint32_t v) {
    return model_.overwrites[v] == model_.num_values() || needed_[model_.overwrites[v]] == 0;
  });
}

Cost Evaluator::scan(std::int64_t limit_bytes) {
  needed_.assign(model_.num_values(), 0);
  for (const ValueId v : model_.graph.step_outputs()) needed_[index(v)] = 1;
  profile_.assign(slot_end_.size(), 0);
  Cost cost{.peak_bytes = model_.start_bytes, .time_ns = time_ns_};
  std::int64_t live = model_.end_bytes;
  std::int64_t not_riding = 0;  // bytes of riders that had to be copied: charged throughout
  std::size_t i = runs_.size();
  for (std::size_t slot = slot_end_.size(); slot-- > 0;) {
    const std::size_t begin = slot == 0 ? 0 : slot_end_[slot - 1];
    std::int64_t highest = 0;
    while (i-- > begin) {
      const Run run = runs_[i];
      const StepModel::Op& op = model_.ops[run.op];
      const bool in_place = runs_in_place(run);
      if (!run.again) live -= op.held_bytes;
      if (!run.again && !in_place) not_riding += op.rider_bytes;
      for (const std::uint32_t v : model_.outputs(run.op)) {
        live -= needed_[v] != 0 ? model_.weight[v] : 0;
        needed_[v] = 0;
      }
      for (const std::uint32_t v : model_.inputs(run.op)) {
        live += needed_[v] == 0 ? model_.weight[v] : 0;
        needed_[v] = 1;
      }
      highest = std::max(highest, live + op.transient_bytes - (in_place ? op.in_place_bytes : 0));
      work_ += 2 + (model_.ops[run.op + 1].inputs_begin - op.inputs_begin);
    }
    ++i;
    profile_[slot] = highest;
    cost.peak_bytes = std::max(cost.peak_bytes, highest);
    if (cost.peak_bytes > limit_bytes) return {};
  }
  cost.peak_bytes += not_riding;
  return cost;
}

std::vector<OpId> Evaluator::runs() const {
  std::vector<OpId> ops;
  ops.reserve(runs_.size());
  for (const Run& run : runs_) ops.push_back(op_id(run.op));
  return ops;
}

}  // namespace reprise::detail
