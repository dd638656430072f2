#include "runtime/record/recorder.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/program/passes/split_convolutions.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

// A number that takes the place of a tensor.
bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

void check_plain(const at::Tensor& tensor, const std::string& where) {
  if (tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized() && !tensor.is_nested()) return;
  throw InputError(where +
                   " is called with a tensor that is sparse, quantized or nested: only dense ones can be planned");
}

std::vector<ValueId> values_of(const Argument& argument) {
  std::vector<ValueId> values;
  for (const auto& use : argument.tensors) {
    if (use && std::ranges::find(values, use->value) == values.end()) values.push_back(use->value);
  }
  return values;
}

// What is no call is done once.
ProgramOp no_call(ProgramOp::Kind kind, std::string name, Phase phase, std::string scope = "") {
  ProgramOp op;
  op.kind = kind;
  op.name = std::move(name);
  op.scope = std::move(scope);
  op.phase = phase;
  op.once = true;
  return op;
}

}  // namespace

Recorder::Recorder(std::string name, at::Device device) {
  program_.name = std::move(name);
  program_.device = device;
}

ValueId Recorder::add_value(std::int64_t bytes, Residence residence) {
  program_.values.push_back({.bytes = bytes, .residence = residence});
  return value_id(program_.values.size() - 1);
}

TensorUse Recorder::resident(const at::Tensor& tensor, const std::string& name) {
  check_plain(tensor, "'" + program_.name + "'");
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  auto found = storages_.find(storage);
  const bool counts = tensor.device() == program_.device;
  const std::int64_t bytes = counts ? granted_bytes(tensor.device(), extent_bytes(geometry_of(tensor))) : 0;
  if (found != storages_.end()) {
    std::int64_t& known = program_.values[index(found->second.value)].bytes;
    known = std::max(known, bytes);
  } else {
    const ValueId value = add_value(bytes, Residence::kResident);
    found = storages_.emplace(storage, Known{tensor.storage().getWeakStorageImpl(), value}).first;
    scopes_.resize(program_.values.size());
    const std::size_t end = name.rfind('.');
    scopes_[index(value)] = end == std::string::npos ? "" : name.substr(0, end);
  }
  return {found->second.value, geometry_of(tensor)};
}

// A tensor that nothing recorded has made belongs to the program: numbers written by hand, say.
TensorUse Recorder::use_of(const at::Tensor& tensor) {
  check_plain(tensor, "an operator");
  const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != storages_.end()) return {found->second.value, geometry_of(tensor)};
  // Memory that is not PyTorch's may be gone tomorrow.
  if (!tensor.storage().resizable()) return adopt(tensor);
  const at::Tensor constant = tensor.detach();
  const TensorUse use = resident(constant, "");
  program_.constants.emplace_back(use.value, constant);
  return use;
}

// A copy of what is in the tensor's memory now, as a constant in its place.
TensorUse Recorder::adopt(const at::Tensor& tensor) {
  const at::Tensor copy = copy_of(tensor.detach());
  const TensorUse use = resident(copy, "");
  program_.constants.emplace_back(use.value, copy);
  storages_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                             Known{tensor.storage().getWeakStorageImpl(), use.value});
  return use;
}

// Memory that was made empty and is read before any operator has written to it was filled by hand.
void Recorder::adopt_filled_by_hand(const torch::jit::Stack& arguments, const CallFacts& facts, ProgramOp& op) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (std::ranges::find(facts.written, i) != facts.written.end()) continue;
    for (const at::Tensor& tensor : tensors_of({&arguments[i], 1})) {
      if (!tensor.defined() || is_number(tensor)) continue;
      const ValueId old = use_of(tensor).value;
      if (!empty_.contains(old)) continue;
      const ValueId made = adopt(tensor).value;
      for (auto& use : op.call->arguments[i].tensors) {
        if (use && use->value == old) use->value = made;
      }
    }
  }
}

Argument Recorder::argument_of(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || is_number(tensor)) return {.constant = value};
    return {.kind = Argument::Kind::kTensor, .tensors = {use_of(tensor)}};
  }
  if (value.isTensorList()) {
    Argument list{.kind = Argument::Kind::kTensorList};
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (!tensor.defined()) throw InputError("an operator is called with a list that lacks a tensor");
      list.tensors.emplace_back(use_of(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    Argument list{.kind = Argument::Kind::kOptionalTensorList};
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.tensors.push_back(tensor && tensor->defined() ? std::optional(use_of(*tensor)) : std::nullopt);
    }
    return list;
  }
  return {.constant = value};
}

// By the parameters an op reads; ops without any belong to the module before.
std::string Recorder::scope_of(const Call& call) {
  for (const Argument& argument : call.arguments) {
    for (const ValueId value : values_of(argument)) {
      if (index(value) < scopes_.size() && !scopes_[index(value)].empty()) return scope_ = scopes_[index(value)];
    }
  }
  return scope_;
}

ProgramOp Recorder::make_op(const c10::OperatorHandle& op, const CallFacts& facts, Call call) {
  ProgramOp made;
  const std::string name = short_name(op);
  const std::size_t number = names_[name]++;
  made.name = number == 0 ? name : name + "_" + std::to_string(number);
  made.scope = scope_of(call);
  made.phase = phase_;
  made.once = !facts.repeatable;
  made.call = std::move(call);
  return made;
}

ValueId Recorder::save_generator(const ProgramOp& of) {
  ProgramOp save = no_call(ProgramOp::Kind::kGeneratorState, of.name + "_state", of.phase, of.scope);
  if (token_ != kNoValue) save.also_reads = {token_};
  const ValueId state = add_value(generator_state_bytes(program_.device));
  save.also_makes = {state};
  program_.ops.push_back(std::move(save));
  return state;
}

ValueId Recorder::new_version(ValueId old) {
  const ValueId made = add_value(program_.values[index(old)].bytes);
  program_.values[index(made)].overwrites = old;
  return made;
}

void Recorder::call(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack) {
  const std::lock_guard lock(mutex_);
  const CallFacts facts = facts_of(op, stack, program_.device);
  if (!facts.refusal.empty()) {
    throw InputError("'" + program_.name + "' cannot be captured: it calls " + op.operator_name().name +
                     (scope_.empty() ? "" : " (after " + scope_ + ")") + "; " + facts.refusal);
  }
  const std::size_t count = op.schema().arguments().size();
  const std::size_t first = stack.size() - count;
  Call call{op, {}, at::GradMode::is_enabled()};
  for (std::size_t i = 0; i < count; ++i) call.arguments.push_back(argument_of(stack[first + i]));
  const torch::jit::Stack arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  std::vector<at::Tensor> written;
  for (const std::size_t i : facts.written) {
    for (at::Tensor& tensor : tensors_of({&arguments[i], 1})) written.push_back(std::move(tensor));
  }
  if (!facts.is_view) check_writable(written, short_name(op));
  ProgramOp made = make_op(op, facts, std::move(call));
  if (facts.random) made.generator_state = save_generator(made);
  op.redispatchBoxed(below, &stack);

  if (facts.is_view) return;
  const std::vector<at::Tensor> results = tensors_of(std::span(stack).subspan(first));
  keep_results(results, made);
  const bool makes_new = std::ranges::any_of(made.outputs, [](const auto& use) { return use.has_value(); });
  if (!makes_new && written.empty() && !facts.compares) return;  // a view, or a question about shapes
  adopt_filled_by_hand(arguments, facts, made);
  if (made.name.starts_with("empty") || made.name.starts_with("new_empty")) {
    for (const auto& use : made.outputs) {
      if (use) empty_.insert(use->value);
    }
  }
  if (facts.compares) made.expected = stack.back().toBool();
  note_written(written, made);
  if (facts.random && !on_device(results, written)) {  // drawn once: a state is saved of this device's generator
    made.once = true;
    made.generator_state = kNoValue;
  } else if (facts.random) {
    token_ = add_value(0);
    made.also_makes.push_back(token_);
  }
  if (facts.statistics.empty()) {
    program_.ops.push_back(std::move(made));
  } else {
    add_statistics(facts, made);
  }
}

bool Recorder::on_device(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& written) const {
  const auto is_here = [&](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.device() == program_.device;
  };
  return std::ranges::all_of(results, is_here) && std::ranges::all_of(written, is_here);
}

// Of several results on one storage each has its own geometry. What is known already is no result.
void Recorder::keep_results(const std::vector<at::Tensor>& results, ProgramOp& op) {
  std::set<ValueId> fresh;
  for (const at::Tensor& result : results) {
    op.outputs.emplace_back();
    if (!result.defined()) continue;
    check_plain(result, op.name);
    c10::StorageImpl* storage = result.storage().unsafeGetStorageImpl();
    auto found = storages_.find(storage);
    if (found == storages_.end()) {
      const bool counts = result.device() == program_.device;
      const auto bytes = static_cast<std::int64_t>(result.storage().nbytes());
      const ValueId value = add_value(counts ? granted_bytes(result.device(), bytes) : 0);
      found = storages_.emplace(storage, Known{result.storage().getWeakStorageImpl(), value}).first;
      fresh.insert(value);
    }
    if (fresh.contains(found->second.value)) op.outputs.back() = TensorUse{found->second.value, geometry_of(result)};
  }
}

void Recorder::check_writable(const std::vector<at::Tensor>& tensors, const std::string& name) const {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
    const auto is_it = [&](const auto& entry) {
      return found != storages_.end() && entry.first == found->second.value;
    };
    if (found != storages_.end() && std::ranges::none_of(program_.constants, is_it)) continue;
    throw InputError("'" + program_.name + "' cannot be captured: " + name +
                     " writes to a tensor that is neither made by the step nor a parameter, buffer or input of it. "
                     "Register it as a buffer of the module");
  }
}

void Recorder::note_written(const std::vector<at::Tensor>& tensors, ProgramOp& op) {
  std::set<const c10::StorageImpl*> seen;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == storages_.end()) throw InternalError(op.name + " wrote to memory that is not known");
    const ValueId old = found->second.value;
    const ProgramValue& value = program_.values[index(old)];
    const bool counts = tensor.device() == program_.device;
    if (counts && value.residence == Residence::kPlanned && !is_resident(program_, old) &&
        granted_bytes(tensor.device(), static_cast<std::int64_t>(tensor.storage().nbytes())) != value.bytes) {
      throw InputError("'" + program_.name + "' cannot be captured: " + op.name +
                       " makes the memory of a tensor larger in place. Give it a tensor of the size that it needs");
    }
    found->second.value = new_version(old);
    op.also_makes.push_back(found->second.value);
    op.mutates = true;
  }
}

// The call normalises; at its first run it also updates the statistics, and an effect after it makes their versions.
void Recorder::add_statistics(const CallFacts& facts, ProgramOp& op) {
  ProgramOp effect = no_call(ProgramOp::Kind::kEffect, op.name + "_statistics", op.phase, op.scope);
  op.first_call = op.call;
  for (const std::size_t i : facts.statistics) {
    const ValueId old = op.call->arguments[i].tensors.front()->value;
    op.call->arguments[i] = Argument{};
    if (std::ranges::find(effect.also_reads, old) != effect.also_reads.end()) continue;  // both on one storage
    effect.also_reads.push_back(old);
    const ValueId made = new_version(old);
    effect.also_makes.push_back(made);
    for (auto& [storage, known] : storages_) {
      if (known.value == old) known.value = made;
    }
  }
  for (const auto& output : op.outputs) {
    if (!output) continue;
    effect.also_reads.push_back(output->value);
    break;
  }
  program_.ops.push_back(std::move(op));
  program_.ops.push_back(std::move(effect));
}

void Recorder::end_forward(const at::Tensor& loss) {
  const std::lock_guard lock(mutex_);
  const TensorUse use = use_of(loss);
  if (program_.values[index(use.value)].residence == Residence::kResident || is_resident(program_, use.value)) {
    throw InputError("the loss of '" + program_.name + "' is not made by the step: return a tensor that it computes");
  }
  program_.values[index(use.value)].held = true;
  program_.forward_outputs = {use};
  ProgramOp caller = no_call(ProgramOp::Kind::kCaller, "caller", Phase::kCaller);
  caller.also_reads = {use.value};
  const ValueId kept = add_value(0);
  program_.values[index(kept)].held = true;
  caller.also_makes = {kept};
  program_.ops.push_back(std::move(caller));
  phase_ = Phase::kBackward;
}

// Gradients are handed out: each in memory that is nobody else's.
TensorUse Recorder::own_memory(const at::Tensor& gradient, std::vector<ValueId>& taken) {
  const TensorUse use = use_of(gradient);
  const bool shared = std::ranges::find(taken, use.value) != taken.end();
  if (!shared && !program_.values[index(use.value)].held && !is_resident(program_, use.value)) return use;
  ProgramOp copy;
  copy.name = "gradient_copy_" + std::to_string(taken.size());
  copy.phase = Phase::kBackward;
  copy.call = Call{c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", ""), {}};
  copy.call->arguments = {{.kind = Argument::Kind::kTensor, .tensors = {use}}, {}};
  const at::Tensor copied = gradient.clone();
  const TensorUse made{add_value(granted_bytes(copied.device(), static_cast<std::int64_t>(copied.storage().nbytes()))),
                       geometry_of(copied)};
  copy.outputs = {made};
  program_.ops.push_back(std::move(copy));
  return made;
}

// What reads or writes memory that changes during the step, and that the step does not own, runs once.
void Recorder::find_single_runs() {
  std::vector<std::uint8_t> changes(program_.values.size(), 0);
  std::set<ValueId> last;
  for (std::size_t i = 0; i < program_.values.size(); ++i) {
    const ValueId old = program_.values[i].overwrites;
    if (old == kNoValue || !is_resident(program_, old)) continue;
    changes[index(old)] = 1;
    last.insert(value_id(i));
    last.erase(old);
  }
  program_.new_contents.assign(last.begin(), last.end());
  for (ProgramOp& op : program_.ops) {
    const auto read = reads(op);
    if (std::ranges::any_of(read, [&](ValueId value) { return changes[index(value)] != 0; })) op.once = true;
  }
}

Program Recorder::finish(const std::vector<at::Tensor>& gradients) {
  const std::lock_guard lock(mutex_);
  ProgramOp hand_over = no_call(ProgramOp::Kind::kHandOver, "hand_over", Phase::kBackward);
  std::vector<ValueId> taken;
  for (const at::Tensor& gradient : gradients) {
    program_.gradients.emplace_back(own_memory(gradient, taken));
    taken.push_back(program_.gradients.back()->value);
  }
  hand_over.also_reads = taken;
  program_.ops.push_back(std::move(hand_over));
  if (program_.device.is_cuda()) split_convolutions(program_);  // elsewhere a call copies the stand-in of the input
  find_single_runs();
  return std::move(program_);
}

namespace {

Recorder* active = nullptr;
std::mutex active_mutex;

const c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python);

void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inner_calls_are_its_own(c10::DispatchKey::Python);
  active->call(op, keys & kBelow, *stack);
}

// An operator that is made of others: these are recorded.
void pass(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & kBelow, stack);
}

}  // namespace

Recording::Recording(Recorder& recorder) {
  const std::lock_guard lock(active_mutex);
  if (active != nullptr) throw InputError("another step is being captured: capture one after the other");
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::Python)) continue;
    const bool composite = op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    kernels_.push_back(dispatcher.registerImpl(name, c10::DispatchKey::Python,
                                               composite ? c10::KernelFunction::makeFromBoxedFunction<&pass>()
                                                         : c10::KernelFunction::makeFromBoxedFunction<&record>(),
                                               std::nullopt, nullptr, "reprise capture"));
  }
  active = &recorder;
  include_.emplace(c10::DispatchKey::Python);
}

Recording::~Recording() {
  const std::lock_guard lock(active_mutex);
  include_.reset();
  kernels_.clear();
  active = nullptr;
}

}  // namespace reprise
