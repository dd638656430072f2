#include "runtime/engine/executor.h"

#include <ATen/core/List.h>

#include <algorithm>
#include <utility>

#include "reprise/torch/errors.h"
#include "reprise/validate.h"
#include "runtime/device/device_thread.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/kernels/call_guards.h"
#include "runtime/kernels/kernel.h"
#include "runtime/program/collectives.h"

namespace reprise {

Executor::Executor(std::shared_ptr<const Program> program, const Plan& plan) : program_(std::move(program)) {
  const Graph graph = make_graph(*program_);
  if (const auto violation = validate(graph, plan)) {
    throw InputError("the plan does not fit the program: " + violation->message);
  }
  if (copies(plan)) host_ = std::make_unique<const HostPlan>(*program_, graph, plan);
  find_produced();
  ops_.reserve(program_->ops.size());
  for (const ProgramOp& op : program_->ops) {
    ops_.push_back({&op, makes(op), prepare(op.call), prepare(op.first_call), prepare(op.in_place_call)});
  }
  optional_seeds_ = optional_seeds(*program_);
  find_boundary(plan);
  find_watched();
  find_saved();
  check_in_place();
  early_.emplace(*program_, actions_);
}

std::vector<std::optional<at::Tensor>> Executor::forward(std::span<const at::Tensor> inputs, StepState& state,
                                                         const std::function<void()>& interrupted) const {
  const auto trace = state.trace;
  const auto arena = state.arena;
  const auto copies = std::exchange(state.copies, nullptr);
  const auto parked = std::exchange(state.parked, nullptr);
  state.clear();
  state.trace = trace;
  state.arena = arena;
  state.parked = parked;
  state.copies = copies;
  if ((host_ == nullptr) != (copies == nullptr)) throw InternalError("a step and its plan disagree about copies");
  const std::size_t expected = program_->inputs.size() - program_->num_state;
  if (inputs.size() != expected) {
    throw InputError("forward of '" + program_->name + "' takes " + std::to_string(expected) + " tensors, got " +
                     std::to_string(inputs.size()));
  }
  try {
    state.slots.resize(program_->values.size());
    state.ran.resize(program_->ops.size(), 0);
    for (const auto& [value, tensor] : program_->constants) state.slots[index(value)] = tensor;
    admit(inputs, program_->inputs, {}, state);
    if (parked != nullptr) parked->enter(state.slots);
    run(0, boundary_, state, interrupted);
    auto outputs = collect(program_->forward_outputs, state, /*keep=*/true);
    for (std::size_t i = 0; i < released_.size(); ++i) {
      if (released_[i] != 0) state.slots[i].reset();
    }
    for (const ValueId value : watched_) {
      const at::Tensor& slot = state.slots[index(value)];
      state.versions.push_back(slot.defined() ? version_of(slot) : 0);  // what is away cannot be changed
    }
    state.pending = true;
    return outputs;
  } catch (...) {
    state.clear();
    throw;
  }
}

void Executor::check_backward(std::span<const at::Tensor> seeds, const StepState& state) const {
  if (!state.pending) throw InputError("backward of '" + program_->name + "' without a forward before it");
  if (seeds.size() != program_->seeds.size()) {
    throw InputError("backward of '" + program_->name + "' takes " + std::to_string(program_->seeds.size()) +
                     " tensors, got " + std::to_string(seeds.size()));
  }
  check_versions(state);
}

std::vector<std::optional<at::Tensor>> Executor::backward(std::span<const at::Tensor> seeds, StepState& state,
                                                          const std::function<void()>& interrupted,
                                                          const GradientTaker* taker) const {
  try {
    check_backward(seeds, state);
    admit(seeds, program_->seeds, optional_seeds_, state);
    state.taker = taker;
    run(boundary_ + 1, actions_.size(), state, interrupted);
    auto gradients = collect(program_->gradients, state, /*keep=*/false);
    state.clear();
    return gradients;
  } catch (...) {
    state.clear();
    throw;
  }
}

std::vector<bool> Executor::live_between() const {
  std::vector<bool> live(program_->values.size(), true);
  for (const PreparedOp& op : ops_) {
    for (const ValueId made : op.makes) live[index(made)] = false;
  }
  for (std::size_t i = 0; i < boundary_; ++i) {
    const Action action = actions_[i];
    if (action.frees()) live[index(action.value())] = false;
    if (!action.computes()) continue;
    for (const ValueId made : ops_[index(action.op())].makes) {
      live[index(made)] = true;
      const ValueId old = program_->values[index(made)].overwrites;
      if (action.in_place() && old != kNoValue) live[index(old)] = false;
    }
  }
  return live;
}

bool Executor::take_over(const Executor& other, StepState& state) const {
  if (!state.pending) return false;
  const std::vector<bool> wanted = live_between();
  const std::vector<bool> there = other.live_between();
  for (std::size_t i = 0; i < std::min(wanted.size(), there.size()); ++i) {
    const bool is_released = other.released_[i] != 0 && released_[i] == 0;
    if (wanted[i] && (!there[i] || is_released)) return false;
  }
  for (std::size_t i = 0; i < std::min(saved_.size(), other.saved_.size()); ++i) {
    if (ops_[i].op->phase == Phase::kForward && saved_[i] != 0 && other.saved_[i] == 0) return false;
  }
  other.check_versions(state);
  state.slots.resize(program_->values.size());
  state.ran.resize(program_->ops.size(), 0);
  for (std::size_t i = 0; i < state.slots.size(); ++i) {
    if (!wanted[i] || released_[i] != 0) state.slots[i].reset();
  }
  state.versions.clear();
  for (const ValueId value : watched_) {
    const at::Tensor& slot = state.slots[index(value)];
    state.versions.push_back(slot.defined() ? version_of(slot) : 0);
  }
  return true;
}

void Executor::admit(std::span<const at::Tensor> tensors, const std::vector<std::optional<TensorUse>>& uses,
                     const std::vector<std::size_t>& optional, StepState& state) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!uses[i]) continue;
    if (!tensors[i].defined() && std::ranges::find(optional, i) != optional.end()) continue;
    const Geometry& expected = uses[i]->geometry;
    at::Tensor tensor = tensors[i];
    if (tensor.defined() && tensor.storage_offset() != expected.offset) tensor = rebased(tensor, expected.offset);
    if (!tensor.defined() || !has_geometry(tensor, expected)) {
      throw InputError("tensor " + std::to_string(i) + " given to '" + program_->name + "' should be " +
                       to_string(expected) + ", is " + (tensor.defined() ? to_string(geometry_of(tensor)) : "missing"));
    }
    at::Tensor& slot = state.slots[index(uses[i]->value)];
    if (slot.defined() && slot.storage().data() != tensor.storage().data()) {
      throw InputError("tensor " + std::to_string(i) + " given to '" + program_->name +
                       "' lay in the memory of another one when the step was captured, and no longer does: capture it "
                       "again");
    }
    if (!slot.defined()) slot = std::move(tensor);
  }
}

void Executor::run(std::size_t begin, std::size_t end, StepState& state,
                   const std::function<void()>& interrupted) const {
  on_device_thread(program_->device, [&] { run_here(begin, end, state, interrupted); });
}

void Executor::run_here(std::size_t begin, std::size_t end, StepState& state,
                        const std::function<void()>& interrupted) const {
  const CallGuards guards(program_->device);
  for (std::size_t i = begin; i < end; ++i) {
    if (interrupted) interrupted();
    if (state.trace != nullptr) reset_meter_peak(program_->device);
    if (host_ != nullptr) state.copies->wait_before(*host_, i);
    if (state.arena != nullptr && actions_[i].computes()) {
      take_in_arena(i, state);
    } else {
      take(actions_[i], state);
    }
    if (state.taker != nullptr) early_->give(i, *program_, *state.taker, state.slots, state.given);
    if (state.trace != nullptr) {
      const MeterReading reading = read_meter(program_->device);
      state.trace->during_bytes.push_back(reading.peak_bytes);
      state.trace->after_bytes.push_back(reading.allocated_bytes);
    }
  }
}

void Executor::take(Action action, StepState& state) const {
  if (!action.computes() && state.parked != nullptr && state.parked->is_back(action.value())) return;
  switch (action.kind()) {
    case Action::Kind::kCompute:
    case Action::Kind::kComputeInPlace:
      compute(ops_[index(action.op())], action.in_place(), state);
      state.ran[index(action.op())] = 1;
      return;
    case Action::Kind::kFree:
      state.slots[index(action.value())].reset();
      if (state.parked != nullptr) state.parked->let_go(action.value());
      return;
    case Action::Kind::kStore:
      state.copies->store(*host_, action.value(), state.slots[index(action.value())]);
      if (state.parked != nullptr) state.parked->note_stored(action.value());
      return;
    case Action::Kind::kFetch:
      state.slots[index(action.value())] = state.copies->fetch(action.value());
      if (state.parked != nullptr) state.parked->note_fetched(action.value(), state.slots[index(action.value())]);
      return;
  }
}

void Executor::take_in_arena(std::size_t action, StepState& state) const {
  const std::size_t op = index(actions_[action].op());
  const bool in_place = actions_[action].in_place();
  state.arena->begin(action, {.op = actions_[action].op(), .first = state.ran[op] == 0, .in_place = in_place});
  {
    const GuideScope scope(program_->device.type(), state.arena.get());
    take(actions_[action], state);
  }
  std::vector<std::pair<ValueId, const void*>> made;
  for (const ValueId value : ops_[op].makes) {
    const at::Tensor& slot = state.slots[index(value)];
    if (slot.defined() && slot.has_storage()) made.emplace_back(value, slot.storage().data());
  }
  state.arena->end(made);
}

void Executor::compute(const PreparedOp& op, bool in_place, StepState& state) const {
  const bool first = state.ran[static_cast<std::size_t>(&op - ops_.data())] == 0;
  switch (op.op->kind) {
    case ProgramOp::Kind::kCall:
      return compute_call(op, in_place, first, state);
    case ProgramOp::Kind::kGeneratorState:
      if (saved_[static_cast<std::size_t>(&op - ops_.data())] == 0) return;
      state.slots[index(op.op->also_makes.front())] = generator_state(program_->device);
      return;
    case ProgramOp::Kind::kEffect:
      return apply_effect(*op.op, state);
    case ProgramOp::Kind::kWait:
      return wait_for(*op.op, state);
    case ProgramOp::Kind::kCaller:
      return;
    case ProgramOp::Kind::kHandOver:
      if (state.parked != nullptr) state.parked->end();
      return;
  }
}

void Executor::start(const PreparedOp& op, StepState& state) const {
  // Kernels of two of NCCL's communicators may wait for each other between ranks, so that one has to be over first.
  // Several collectives of gloo at a time damage the heap.
  const auto group = group_of(*op.call.call);
  for (auto& [value, other] : state.begun) {
    if (program_->device.is_cpu() || other.group() != group) other.wait_until_made();
  }
  std::vector<c10::IValue> stack = arguments_of(op.call, state);
  Communication communication = Kernel(*op.call.call).begin(stack);
  state.begun.insert_or_assign(op.op->outputs.front()->value, std::move(communication));
  keep_outputs(op, stack, state);
}

// The result is there, and what was in flight is that.
void Executor::wait_for(const ProgramOp& op, StepState& state) const {
  const ValueId made = op.also_makes.front();
  const ValueId in_flight = program_->values[index(made)].overwrites;
  const auto communication = state.begun.find(in_flight);
  if (communication == state.begun.end()) throw InternalError("'" + op.name + "' waits for nothing");
  communication->second.wait();
  state.begun.erase(communication);
  state.slots[index(made)] = std::exchange(state.slots[index(in_flight)], at::Tensor());
}

// Handles a sum with a gradient that the caller does not have.
bool Executor::pass_through(const ProgramOp& op, bool in_place, StepState& state) const {
  if (op.added_seed == kNoValue || state.slots[index(op.added_seed)].defined()) return false;
  at::Tensor& other = state.slots[index(op.added_to)];
  at::Tensor& sum = state.slots[index(op.outputs.front()->value)];
  if (sum.defined()) return true;
  const Geometry& geometry = op.outputs.front()->geometry;
  const at::Tensor passed = has_geometry(other, geometry) ? other : view_of(other, geometry);
  sum = in_place ? passed : passed.clone();
  if (in_place) other.reset();
  return true;
}

// Runs a call that writes over its operands, on the operands themselves or on copies.
void Executor::compute_mutation(const PreparedOp& op, bool in_place, bool first, StepState& state) const {
  std::vector<std::pair<ValueId, at::Tensor>> kept;
  for (const ValueId made : op.op->also_makes) {
    const ValueId old = program_->values[index(made)].overwrites;
    if (old == kNoValue) continue;
    at::Tensor& slot = state.slots[index(old)];
    if (!slot.defined()) throw InternalError("value " + std::to_string(index(old)) + " is not live");
    if (in_place) {
      kept.emplace_back(old, at::Tensor());
    } else {
      at::Tensor copy = copy_of(slot);
      kept.emplace_back(old, std::exchange(slot, std::move(copy)));
    }
  }
  run_call(op, op.call, first, state);
  for (const ValueId made : op.op->also_makes) {
    const ValueId old = program_->values[index(made)].overwrites;
    if (old == kNoValue) continue;
    at::Tensor& slot = state.slots[index(old)];
    if (in_place && is_resident(*program_, old)) bump_version(slot);
    if (!state.slots[index(made)].defined()) state.slots[index(made)] = slot;
    slot.reset();
  }
  for (auto& [old, tensor] : kept) state.slots[index(old)] = std::move(tensor);
}

void Executor::run_call(const PreparedOp& op, const PreparedCall& prepared, bool first, StepState& state) const {
  std::vector<c10::IValue> stack;
  if (!first && op.op->generator_state != kNoValue) {
    const GeneratorReplay replay(program_->device, state.slots[index(op.op->generator_state)]);
    call(prepared, state, stack);
  } else {
    call(prepared, state, stack);
  }
  if (op.op->expected && stack.front().toBool() != *op.op->expected) {
    throw InputError("'" + op.op->name + "' compared tensors and got another result than when '" + program_->name +
                     "' was captured, so the model would run other code. Capture it again with such inputs");
  }
  keep_outputs(op, stack, state);
}

void Executor::compute_call(const PreparedOp& op, bool in_place, bool first, StepState& state) const {
  if (op.op->stream != 0) return start(op, state);
  if (pass_through(*op.op, in_place, state)) return;
  if (op.op->mutates) return compute_mutation(op, in_place, first, state);
  const bool with_effect = first && op.op->first_call.has_value();
  const PreparedCall& prepared = with_effect ? op.first_call : in_place ? op.in_place_call : op.call;
  if (prepared.call == nullptr) throw InternalError("op '" + op.op->name + "' has no call for this kind of run");
  if (in_place) {
    std::vector<c10::IValue> stack;
    call(prepared, state, stack);
    retire_overwritten(*op.op, state);
    keep_outputs(op, stack, state);
  } else {
    run_call(op, prepared, first, state);
  }
}

void Executor::retire_overwritten(const ProgramOp& op, StepState& state) const {
  for (const auto& output : op.outputs) {
    const ValueId old = output ? program_->values[index(output->value)].overwrites : kNoValue;
    if (old == kNoValue) continue;
    at::Tensor& slot = state.slots[index(old)];
    if (program_->values[index(old)].residence == Residence::kResident) bump_version(slot);
    slot.reset();
  }
}

std::vector<c10::IValue> Executor::arguments_of(const PreparedCall& prepared, const StepState& state) const {
  std::vector<c10::IValue> stack = prepared.arguments;
  const auto& arguments = prepared.call->arguments;
  std::size_t next = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    if (argument.kind == Argument::Kind::kConstant) continue;
    const auto tensor_of = [&](const Patch& patch) {
      const at::Tensor& slot = state.slots[index(patch.value)];
      if (!slot.defined()) throw InternalError("value " + std::to_string(index(patch.value)) + " is not live");
      return patch.as_produced ? slot : view_of(slot, *patch.geometry);
    };
    const auto is_next = [&](std::size_t element) {
      return next < prepared.patches.size() && prepared.patches[next].argument == i &&
             prepared.patches[next].element == element;
    };
    if (argument.kind == Argument::Kind::kTensor) {
      if (is_next(0)) stack[i] = tensor_of(prepared.patches[next++]);
    } else if (argument.kind == Argument::Kind::kTensorList) {
      c10::List<at::Tensor> list;
      list.reserve(argument.tensors.size());
      for (std::size_t k = 0; k < argument.tensors.size(); ++k) list.push_back(tensor_of(prepared.patches[next++]));
      stack[i] = std::move(list);
    } else {
      c10::List<std::optional<at::Tensor>> list;
      for (std::size_t k = 0; k < argument.tensors.size(); ++k) {
        list.push_back(is_next(k) ? std::optional<at::Tensor>(tensor_of(prepared.patches[next++])) : std::nullopt);
      }
      stack[i] = std::move(list);
    }
  }
  return stack;
}

void Executor::call(const PreparedCall& prepared, const StepState& state, std::vector<c10::IValue>& stack) const {
  stack = arguments_of(prepared, state);
  Kernel(*prepared.call).run(stack);
}

void Executor::keep_outputs(const PreparedOp& op, std::vector<c10::IValue>& results, StepState& state) const {
  std::vector<at::Tensor> tensors = tensors_of(results);
  results.clear();
  const auto& outputs = op.op->outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i] || i >= tensors.size()) continue;
    if (!tensors[i].defined() || !has_geometry(tensors[i], outputs[i]->geometry)) {
      throw InternalError("operator '" + op.op->name + "' should return " + to_string(outputs[i]->geometry) +
                          ", returned " + (tensors[i].defined() ? to_string(geometry_of(tensors[i])) : "nothing"));
    }
    // The value is already live, in its slot or (if released) with the caller, so this is a second copy.
    at::Tensor& slot = state.slots[index(outputs[i]->value)];
    const bool live = slot.defined() || (state.pending && released_[index(outputs[i]->value)] != 0);
    if (!live) slot = std::move(tensors[i]);
  }
}

// The contents changed at the first run of the preceding call; here the new versions get their slots.
void Executor::apply_effect(const ProgramOp& op, StepState& state) const {
  for (const ValueId made : op.also_makes) {
    const ValueId old = program_->values[index(made)].overwrites;
    at::Tensor& slot = state.slots[index(old)];
    bump_version(slot);
    state.slots[index(made)] = std::move(slot);
    slot.reset();
  }
}

void Executor::check_versions(const StepState& state) const {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const at::Tensor& slot = state.slots[index(watched_[i])];
    if (!slot.defined() || version_of(slot) == state.versions[i]) continue;
    throw ModifiedInPlace(
        modified_in_place("value " + std::to_string(index(watched_[i])) + " of '" + program_->name + "'"));
  }
}

std::string modified_in_place(const std::string& what) {
  return "one of the variables needed for gradient computation has been modified by an inplace operation between "
         "forward and backward: " +
         what + ". Reprise may read any input, parameter or output of the model again during backward; modify them " +
         "after it";
}

// With `keep`, the slot keeps an alias of its own: the tensor that is handed out gets a history, which must not keep
// the step alive.
std::vector<std::optional<at::Tensor>> Executor::collect(const std::vector<std::optional<TensorUse>>& uses,
                                                         const StepState& state, bool keep) const {
  std::vector<std::optional<at::Tensor>> tensors;
  tensors.reserve(uses.size());
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const auto& use = uses[i];
    if (!use || (!keep && i < state.given.size() && state.given[i] != 0)) {
      tensors.emplace_back(std::nullopt);
      continue;
    }
    const at::Tensor& slot = state.slots[index(use->value)];
    if (!slot.defined()) throw InternalError("output value " + std::to_string(index(use->value)) + " is not live");
    const bool as_produced = !keep && has_geometry(slot, use->geometry);
    at::Tensor tensor = as_produced ? slot : view_of(slot, use->geometry);
    if (keep && !slot.is_inference())
      tensor.unsafeGetTensorImpl()->set_version_counter(slot.unsafeGetTensorImpl()->version_counter());
    tensors.emplace_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace reprise
