#include "runtime/engine/step_copies.h"

#include <ATen/ops/empty.h>

#include "runtime/program/tensor_memory.h"

namespace reprise {

void StepCopies::store(const HostPlan& plan, ValueId value, const at::Tensor& tensor) {
  const at::Tensor bytes = bytes_of(tensor);
  stored_.insert_or_assign(value, Stored{geometry_of(tensor), bytes.numel(), bytes.options()});
  link_->store(value, bytes, plan.offset_of(value));
}

at::Tensor StepCopies::fetch(const HostPlan& plan, ValueId value) {
  const Stored& stored = stored_.at(value);
  const at::Tensor bytes = at::empty({stored.bytes}, stored.options);
  link_->fetch(value, bytes, plan.offset_of(value));
  return view_of(bytes, stored.geometry);
}

}  // namespace reprise
