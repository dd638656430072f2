#include "solve/auto/runs.h"

#include <algorithm>

namespace reprise::detail {

void RunMaker::turn(OpId op, const ByValue<Label>& labels) {
  for (const ValueId v : model_.inputs(op)) {
    if (!read(v)) demand(model_.producer[v], labels);
  }
  runs.push_back({op, false});
  for (const ValueId v : passing_) presence[v] = Presence::kAbsent;
  passing_.clear();
}

bool RunMaker::read(ValueId value) {
  if (presence[value] == Presence::kPresent) return true;
  if (presence[value] != Presence::kToRelease) return false;
  presence[value] = Presence::kPresent;
  passing_.push_back(value);
  return true;
}

// Depth first, with an explicit stack, because chains are as deep as networks.
void RunMaker::demand(OpId op, const ByValue<Label>& labels) {
  stack_.push_back({op, model_.ops[op].inputs_begin});
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    const std::uint32_t end = model_.ops[top.op].inputs_end;
    while (top.next < end && read(model_.op_inputs[top.next])) ++top.next;
    if (top.next < end) {
      const OpId missing = model_.producer[model_.op_inputs[top.next]];
      stack_.push_back({missing, model_.ops[missing].inputs_begin});
    } else {
      run_again(top.op, labels);
      stack_.pop_back();
    }
  }
}

void RunMaker::run_again(OpId op, const ByValue<Label>& labels) {
  runs.push_back({op, true});
  again_ns += model_.ops[op].time_ns;
  for (const ValueId v : model_.outputs(op)) {
    const Presence before = presence[v];
    if (before == Presence::kPresent || before == Presence::kToRelease) continue;
    presence[v] = Presence::kPresent;
    if (labels[v] == Label::kDiscard || before == Presence::kAbsentOnce) passing_.push_back(v);
  }
}

void RunScan::begin_at_end() {
  needed.assign(model_.num_values(), 0);
  for (const ValueId v : model_.graph.step_outputs()) needed[v] = 1;
  live = model_.end_bytes;
  not_riding = 0;
}

// While scanning backwards: whether what the op may overwrite is not needed later.
bool RunScan::runs_in_place(const Run& run) const {
  const StepModel::Op& op = model_.ops[run.op];
  if (!op.overwrites || (run.again && op.overwrites_pinned)) return false;
  return std::ranges::all_of(model_.outputs(run.op), [&](ValueId v) {
    return model_.overwrites[v] == kNoValue || needed[model_.overwrites[v]] == 0;
  });
}

std::int64_t RunScan::visit(const Run& run) {
  const StepModel::Op& op = model_.ops[run.op];
  const bool in_place = runs_in_place(run);
  if (!run.again) live -= op.held_bytes;
  if (!run.again && !in_place) not_riding += op.rider_bytes;
  for (const ValueId v : model_.outputs(run.op)) {
    live -= needed[v] != 0 ? model_.weight[v] : 0;
    needed[v] = 0;
  }
  for (const ValueId v : model_.inputs(run.op)) {
    live += needed[v] == 0 ? model_.weight[v] : 0;
    needed[v] = 1;
  }
  return live + op.transient_bytes - (in_place ? op.in_place_bytes : 0);
}

}  // namespace reprise::detail
