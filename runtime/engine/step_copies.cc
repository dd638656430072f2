#include "runtime/engine/step_copies.h"

#include <ATen/ops/empty.h>

#include "runtime/program/tensor_memory.h"

namespace reprise {

void StepCopies::wait_before(const HostPlan& plan, std::size_t action) {
  const std::lock_guard lock(mutex_);
  for (const CopyWait& wait : plan.waits_before(action)) {
    if (abandoned_.contains(wait.value)) continue;
    wait.for_fetch ? link_->wait_for_fetch(wait.value) : link_->wait_for_store(wait.value);
    if (wait.for_fetch) coming_.erase(wait.value);
  }
}

void StepCopies::store(const HostPlan& plan, ValueId value, const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  const at::Tensor bytes = bytes_of(tensor);
  const std::int64_t offset = plan.offset_of(value);
  stored_.insert_or_assign(value, Stored{geometry_of(tensor), bytes.numel(), offset, bytes.options()});
  link_->store(value, bytes, offset);
}

at::Tensor StepCopies::fetch(ValueId value) {
  const std::lock_guard lock(mutex_);
  const Stored& stored = stored_.at(value);
  const at::Tensor bytes = at::empty({stored.bytes}, stored.options);
  link_->fetch(value, bytes, stored.offset);
  coming_.insert(value);
  return view_of(bytes, stored.geometry);
}

void StepCopies::finish(ValueId value) {
  const std::lock_guard lock(mutex_);
  if (coming_.erase(value) != 0) link_->wait_for_fetch(value);
}

void StepCopies::finish_all() {
  const std::lock_guard lock(mutex_);
  link_->wait_for_all();
  coming_.clear();
}

void StepCopies::abandon(ValueId value) {
  const std::lock_guard lock(mutex_);
  abandoned_.insert(value);
}

}  // namespace reprise
