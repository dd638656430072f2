#include "runtime/record/recorder.h"

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/meter.h"
#include "runtime/kernels/kernel.h"
#include "runtime/program/tensor_memory.h"
#include "runtime/record/call_hook.h"

namespace reprise {
namespace {

// A number that takes the place of a tensor.
bool is_number(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

void check_plain(const at::Tensor& tensor, const std::string& where) {
  if (tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized() && !tensor.is_nested()) return;
  throw InputError(where +
                   " is called with a tensor that is sparse, quantized or nested: only dense ones can be planned");
}

}  // namespace

Recorder::Recorder(std::string name, at::Device device) : builder_(std::move(name), device) {}

TensorUse Recorder::resident(const at::Tensor& tensor, const std::string& name) {
  check_plain(tensor, "'" + program().name + "'");
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const Geometry geometry = geometry_of(tensor);
  const auto found = storages_.find(storage);
  if (found != storages_.end()) {
    builder_.grow(found->second.memory, extent_bytes(geometry));
    return {found->second.memory, geometry};
  }
  const ValueId memory = builder_.resident(extent_bytes(geometry), tensor.device());
  storages_.emplace(storage, Known{tensor.storage().getWeakStorageImpl(), memory});
  scopes_.resize(index(memory) + 1);
  const std::size_t end = name.rfind('.');
  scopes_[index(memory)] = end == std::string::npos ? "" : name.substr(0, end);
  return {memory, geometry};
}

void Recorder::input(const at::Tensor& tensor, const std::string& name) { builder_.input(resident(tensor, name)); }

// A tensor that no recorded call has made belongs to the program, for example numbers written by hand.
TensorUse Recorder::use_of(const at::Tensor& tensor) {
  check_plain(tensor, "an operator");
  const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
  if (found != storages_.end()) return {found->second.memory, geometry_of(tensor)};
  // Memory that PyTorch did not allocate may be freed at any time.
  if (!tensor.storage().resizable()) return adopt(tensor);
  const at::Tensor constant = tensor.detach();
  const TensorUse use = resident(constant, "");
  builder_.constant(use.value, constant);
  return use;
}

// Puts a constant in the tensor's place: a copy of what is in its memory now.
TensorUse Recorder::adopt(const at::Tensor& tensor) {
  const at::Tensor copy = copy_of(tensor.detach());
  const TensorUse use = resident(copy, "");
  builder_.constant(use.value, copy);
  storages_.insert_or_assign(tensor.storage().unsafeGetStorageImpl(),
                             Known{tensor.storage().getWeakStorageImpl(), use.value});
  return use;
}

// Memory that was allocated empty and is read before any operator has written to it was filled by hand.
void Recorder::adopt_filled_by_hand(const torch::jit::Stack& arguments, const CallFacts& facts, Call& call) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = std::ranges::find(facts.written, i) != facts.written.end();
    for (const at::Tensor& tensor : tensors_of({&arguments[i], 1})) {
      if (!tensor.defined() || is_number(tensor)) continue;
      const ValueId old = use_of(tensor).value;
      if (is_written) empty_.erase(old);
      if (!empty_.contains(old)) continue;
      const ValueId made = adopt(tensor).value;
      for (auto& use : call.arguments[i].tensors) {
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

// The scope of an op follows from the parameters it reads; an op that reads none belongs to the module of the op
// before.
std::string Recorder::scope_of(const Call& call) {
  for (const Argument& argument : call.arguments) {
    for (const ValueId memory : values_of(argument.tensors)) {
      if (index(memory) < scopes_.size() && !scopes_[index(memory)].empty()) return scope_ = scopes_[index(memory)];
    }
  }
  return scope_;
}

std::string Recorder::next_name(const std::string& name) {
  const std::size_t number = names_[name]++;
  return number == 0 ? name : name + "_" + std::to_string(number);
}

void Recorder::call(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack) {
  const std::lock_guard lock(mutex_);
  const std::string operator_name = short_name(op);
  const std::size_t count = op.schema().arguments().size();
  const std::size_t first = stack.size() - count;
  const torch::jit::Stack arguments(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  Call call{op, {}, at::GradMode::is_enabled()};
  for (const c10::IValue& argument : arguments) call.arguments.push_back(argument_of(argument));
  const CallFacts facts = facts_of(call);
  if (!facts.refusal.empty()) {
    throw InputError("'" + program().name + "' cannot be captured: it calls " + op.operator_name().name +
                     (scope_.empty() ? "" : " (after " + scope_ + ")") + "; " + facts.refusal);
  }
  std::vector<at::Tensor> written;
  for (const std::size_t i : facts.written) {
    for (at::Tensor& tensor : tensors_of({&arguments[i], 1})) written.push_back(std::move(tensor));
  }
  if (!facts.is_view) check_writable(written, operator_name);
  const std::string scope = scope_of(call);
  op.redispatchBoxed(below, &stack);

  if (facts.is_view) return;
  Uses results = new_results(tensors_of(std::span(stack).subspan(first)), operator_name);
  const std::vector<ValueId> made = values_of(results);
  if (made.empty() && written.empty() && !facts.compares) return;  // a view, or a question about shapes
  adopt_filled_by_hand(arguments, facts, call);
  if (operator_name.starts_with("empty") || operator_name.starts_with("new_empty")) {
    empty_.insert(made.begin(), made.end());
  }
  check_not_grown(written, operator_name);
  const bool repeats = Kernel(call).repeats(program().device);
  builder_.call({.name = next_name(operator_name),
                 .scope = scope,
                 .call = std::move(call),
                 .facts = facts,
                 .repeats = repeats,
                 .results = std::move(results),
                 .expected = facts.compares ? std::optional(stack.back().toBool()) : std::nullopt});
}

// If several results lie on one storage, each has its own geometry. Memory that is already known is not a new result.
Uses Recorder::new_results(const std::vector<at::Tensor>& results, const std::string& name) {
  Uses uses;
  std::set<ValueId> fresh;
  for (const at::Tensor& result : results) {
    uses.emplace_back();
    if (!result.defined()) continue;
    check_plain(result, name);
    c10::StorageImpl* storage = result.storage().unsafeGetStorageImpl();
    auto found = storages_.find(storage);
    if (found == storages_.end()) {
      const ValueId memory = builder_.made(static_cast<std::int64_t>(result.storage().nbytes()), result.device());
      found = storages_.emplace(storage, Known{result.storage().getWeakStorageImpl(), memory}).first;
      fresh.insert(memory);
    }
    if (fresh.contains(found->second.memory)) uses.back() = TensorUse{found->second.memory, geometry_of(result)};
  }
  return uses;
}

void Recorder::check_writable(const std::vector<at::Tensor>& tensors, const std::string& name) const {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
    if (found != storages_.end() && !builder_.is_constant(found->second.memory)) continue;
    throw InputError("'" + program().name + "' cannot be captured: " + name +
                     " writes to a tensor that is neither made by the step nor a parameter, buffer or input of it. "
                     "Register it as a buffer of the module");
  }
}

// Checks that no tensor's memory was made larger by a write.
void Recorder::check_not_grown(const std::vector<at::Tensor>& tensors, const std::string& name) const {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.device() != program().device) continue;
    const auto found = storages_.find(tensor.storage().unsafeGetStorageImpl());
    if (found == storages_.end()) throw InternalError(name + " wrote to memory that is not known");
    const ProgramValue& value = program().values[index(found->second.memory)];
    const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
    if (value.residence != Residence::kPlanned || granted_bytes(program().device, bytes) == value.bytes) continue;
    throw InputError("'" + program().name + "' cannot be captured: " + name +
                     " makes the memory of a tensor larger in place. Give it a tensor of the size that it needs");
  }
}

void Recorder::end_forward(const at::Tensor& loss) {
  const std::lock_guard lock(mutex_);
  const TensorUse use = use_of(loss);
  if (builder_.is_resident(use.value)) {
    throw InputError("the loss of '" + program().name + "' is not made by the step: return a tensor that it computes");
  }
  builder_.end_forward({use});
}

Program Recorder::finish(const std::vector<at::Tensor>& gradients) {
  const std::lock_guard lock(mutex_);
  std::vector<std::optional<ProgramBuilder::Gradient>> handed_over;
  for (const at::Tensor& gradient : gradients) {
    handed_over.push_back({{.use = use_of(gradient), .name = "gradient_" + std::to_string(handed_over.size())}});
  }
  return builder_.finish(handed_over);
}

namespace {

Recorder* active = nullptr;
std::mutex active_mutex;

const c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Python);

void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard inner_calls_are_its_own(c10::DispatchKey::Python);
  active->call(op, keys & kBelow, *stack);
}

// For an operator that is made of others: its parts are recorded instead.
void pass(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & kBelow, stack);
}

}  // namespace

Recording::Recording(Recorder& recorder) {
  const std::lock_guard lock(active_mutex);
  if (active != nullptr) throw InputError("another step is being captured: capture one step after the other");
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::Python)) continue;
    kernels_.push_back(dispatcher.registerImpl(name, c10::DispatchKey::Python,
                                               is_made_of_others(*op)
                                                   ? c10::KernelFunction::makeFromBoxedFunction<&pass>()
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
