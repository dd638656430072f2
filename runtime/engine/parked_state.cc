#include "runtime/engine/parked_state.h"

#include <c10/core/StorageImpl.h>

#include <utility>

#include "reprise/error.h"
#include "runtime/program/passes/park.h"

namespace reprise {
namespace {

// A storage of the same size without memory.
c10::Storage absent_storage(const at::Tensor& tensor) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<std::int64_t>(tensor.storage().nbytes()),
      at::DataPtr(nullptr, tensor.device()), /*allocator=*/nullptr, /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "this state of the optimizer is in the host's memory, because host_budget allows it from the call of the model "
      "to the end of backward. Read it before or after that, or call model.plan.bring_back_state() first");
  return c10::Storage(std::move(storage));
}

void set_storage(const at::Tensor& tensor, c10::Storage storage) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const bool may_change = impl.allow_tensor_metadata_change();
  impl.set_allow_tensor_metadata_change(true);  // not so for what detach() returns
  impl.set_storage_keep_dtype(std::move(storage));
  impl.set_allow_tensor_metadata_change(may_change);
}

}  // namespace

ParkedState::ParkedState(const Program& program, std::vector<at::Tensor> state, std::shared_ptr<StepCopies> copies)
    : copies_(std::move(copies)) {
  const std::vector<ValueId> values = state_values(program);
  if (values.size() != state.size()) throw InternalError("a step and the optimizer's state do not fit together");
  for (std::size_t i = 0; i < values.size(); ++i) parts_.emplace(values[i], Part{.tensor = std::move(state[i])});
}

void ParkedState::enter(std::vector<at::Tensor>& slots) const {
  for (const auto& [value, part] : parts_) slots[index(value)] = part.tensor;
}

void ParkedState::let_go(ValueId value) {
  const std::lock_guard lock(mutex_);
  const auto part = parts_.find(value);
  if (part == parts_.end()) return;
  set_storage(part->second.tensor, absent_storage(part->second.tensor));
  part->second.is_away = true;
}

void ParkedState::note_fetched(ValueId value, const at::Tensor& fetched) {
  const std::lock_guard lock(mutex_);
  const auto part = parts_.find(value);
  if (part != parts_.end()) part->second.fetched = fetched;
}

bool ParkedState::is_back(ValueId value) const {
  const std::lock_guard lock(mutex_);
  return back_.contains(value);
}

void ParkedState::give_back(Part& part) {
  set_storage(part.tensor, part.fetched.storage());
  part.fetched.reset();
  part.is_away = false;
}

void ParkedState::end() {
  const std::lock_guard lock(mutex_);
  for (auto& [value, part] : parts_) {
    if (!part.is_away) continue;
    if (!part.fetched.defined()) throw InternalError("state of the optimizer was not fetched by the end of the step");
    give_back(part);
  }
  parts_.clear();
  copies_.reset();
}

bool ParkedState::bring_back() {
  const std::lock_guard lock(mutex_);
  bool any = false;
  while (!parts_.empty()) {
    const auto first = parts_.begin();
    auto& [value, part] = *first;
    if (part.is_away) {
      if (!part.fetched.defined()) part.fetched = copies_->fetch(value);
      copies_->finish(value);
      give_back(part);
      any = true;
    }
    copies_->abandon(value);
    back_.insert(value);
    parts_.erase(first);
  }
  copies_.reset();
  return any;
}

}  // namespace reprise
