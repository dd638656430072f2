#include "runtime/engine/parked_state.h"

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "reprise/error.h"
#include "runtime/device/meter.h"
#include "runtime/program/passes/park.h"
#include "runtime/program/tensor_memory.h"

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

// The memory may be from another stream than the one that has waited for its copy.
void free_after_work_so_far(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), guard.getStream(tensor.device()));
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
  const std::lock_guard lock(mutex_);
  for (const auto& [value, part] : parts_) slots[index(value)] = part.tensor;
}

void ParkedState::note_stored(ValueId value) {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find(value);
  if (found == parts_.end()) return;
  Part& part = found->second;
  part.stored_from = part.tensor.storage().data();
  part.stored_version = version_of(part.tensor);
}

void ParkedState::let_go(ValueId value) {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find(value);
  if (found == parts_.end()) return;
  Part& part = found->second;
  if (part.tensor.storage().data() != part.stored_from || version_of(part.tensor) != part.stored_version) {
    throw InputError(
        "state of the optimizer was changed between the call of the model and the end of backward, after it had been "
        "stored in the host's memory. Change it before or after that, or call model.plan.bring_back_state() first");
  }
  free_after_work_so_far(part.tensor);
  set_storage(part.tensor, absent_storage(part.tensor));
  part.is_away = true;
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

std::int64_t ParkedState::missing_bytes(const Part& part) {
  if (!part.is_away || part.fetched.defined()) return 0;
  return granted_bytes(part.tensor.device(), static_cast<std::int64_t>(part.tensor.storage().nbytes()));
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

void ParkedState::bring_back() {
  const std::lock_guard lock(mutex_);
  while (!parts_.empty()) {
    const auto first = parts_.begin();
    auto& [value, part] = *first;
    if (part.is_away) {
      const std::int64_t missing = missing_bytes(part);
      if (!part.fetched.defined()) part.fetched = copies_->fetch(value);
      copies_->finish(value);
      give_back(part);
      returned_bytes_ += missing;
    }
    copies_->abandon(value);
    back_.insert(value);
    parts_.erase(first);
  }
  copies_.reset();
}

std::int64_t ParkedState::away_bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& [value, part] : parts_) bytes += missing_bytes(part);
  return bytes;
}

std::int64_t ParkedState::returned_bytes() const {
  const std::lock_guard lock(mutex_);
  return returned_bytes_;
}

}  // namespace reprise
