// What an executor finds in a program and a plan before it runs them.
#include <algorithm>
#include <utility>

#include "reprise/error.h"
#include "runtime/engine/executor.h"
#include "runtime/program/passes/park.h"

namespace reprise {

// If several results lie on one storage, its slot keeps the first.
void Executor::find_produced() {
  produced_.resize(program_->values.size());
  const auto note = [&](const std::vector<std::optional<TensorUse>>& uses) {
    for (const auto& use : uses) {
      if (use && !produced_[index(use->value)]) produced_[index(use->value)] = use->geometry;
    }
  };
  note(program_->inputs);
  note(program_->seeds);
  for (const auto& [value, tensor] : program_->constants) produced_[index(value)] = geometry_of(tensor);
  for (const ProgramOp& op : program_->ops) {
    note(op.outputs);
    for (const ValueId made : op.also_makes) {
      const ValueId old = program_->values[index(made)].overwrites;
      if (old != kNoValue) produced_[index(made)] = produced_[index(old)];
    }
  }
}

Executor::PreparedCall Executor::prepare(const std::optional<Call>& call) const {
  PreparedCall prepared;
  if (!call) return prepared;
  prepared.call = &*call;
  for (const Argument& argument : call->arguments) {
    const auto position = static_cast<std::uint32_t>(prepared.arguments.size());
    prepared.arguments.push_back(argument.kind == Argument::Kind::kConstant ? argument.constant : c10::IValue());
    for (std::uint32_t i = 0; i < argument.tensors.size(); ++i) {
      const auto& use = argument.tensors[i];
      if (!use) continue;
      const bool as_produced = produced_[index(use->value)] == use->geometry;
      prepared.patches.push_back({position, i, use->value, &use->geometry, as_produced});
    }
  }
  return prepared;
}

void Executor::find_boundary(const Plan& plan) {
  actions_ = plan.actions;
  const OpId caller = program_->caller_op();
  const auto found =
      std::ranges::find_if(actions_, [&](const Action& action) { return action.computes() && action.op() == caller; });
  boundary_ = static_cast<std::size_t>(found - actions_.begin());
}

// A state that takes no bytes on the device is saved only for calls that run again, because a CUDA graph cannot save
// it.
void Executor::find_saved() {
  saved_.resize(program_->ops.size(), 0);
  std::vector<std::size_t> runs(program_->ops.size(), 0);
  for (const Action& action : actions_) {
    if (action.computes()) ++runs[index(action.op())];
  }
  std::vector<std::uint8_t> read(program_->values.size(), 0);
  for (std::size_t i = 0; i < program_->ops.size(); ++i) {
    const ValueId state = program_->ops[i].generator_state;
    if (state != kNoValue && runs[i] > 1) read[index(state)] = 1;
  }
  for (std::size_t i = 0; i < program_->ops.size(); ++i) {
    if (program_->ops[i].kind != ProgramOp::Kind::kGeneratorState) continue;
    const ValueId state = program_->ops[i].also_makes.front();
    saved_[i] = read[index(state)] != 0 || program_->values[index(state)].bytes > 0 ? 1 : 0;
  }
}

// Checks that new contents of memory that the step does not own are written there and not into a copy.
void Executor::check_in_place() const {
  for (const Action& action : actions_) {
    if (!action.computes() || action.in_place()) continue;
    for (const ValueId made : makes(program_->ops[index(action.op())])) {
      if (program_->values[index(made)].overwrites == kNoValue || !is_resident(*program_, made)) continue;
      throw InputError("the plan runs '" + program_->ops[index(action.op())].name +
                       "', which changes memory that outlives the step, into a copy");
    }
  }
}

// Finds which tensors of the caller (and which of those it got from forward) are read after the caller's op, and which
// values nothing reads any more although the plan may not free them.
void Executor::find_watched() {
  released_.resize(program_->values.size(), 0);
  std::vector<std::uint8_t> read(program_->values.size(), 0);
  for (std::size_t i = boundary_ + 1; i < actions_.size(); ++i) {
    if (!actions_[i].computes()) continue;
    for (const ValueId value : reads(program_->ops[index(actions_[i].op())])) read[index(value)] = 1;
  }
  for (const auto& gradient : program_->gradients) {
    if (gradient) read[index(gradient->value)] = 1;
  }
  std::vector<bool> is_state(program_->values.size(), false);  // the optimizer's, which no call reads
  for (const ValueId value : state_values(*program_)) is_state[index(value)] = true;
  std::vector<std::uint8_t> callers(program_->values.size(), 0);
  for (const auto* uses : {&program_->inputs, &program_->forward_outputs}) {
    for (const auto& use : *uses) {
      if (use) callers[index(use->value)] = 1;
    }
  }
  for (std::size_t i = 0; i < program_->values.size(); ++i) {
    const bool never_freed =
        callers[i] != 0 || program_->values[i].held || program_->values[i].residence != Residence::kPlanned;
    if (callers[i] != 0 && read[i] != 0 && !is_state[i]) watched_.push_back(value_id(i));
    released_[i] = never_freed && read[i] == 0 ? 1 : 0;
  }
}

}  // namespace reprise
