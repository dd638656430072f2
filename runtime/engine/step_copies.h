// The copies of one step between the device and the host, as its plan asks for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <utility>

#include "runtime/device/host_link.h"
#include "runtime/engine/host_plan.h"
#include "runtime/program/program.h"

namespace reprise {

class StepCopies {
 public:
  explicit StepCopies(std::unique_ptr<HostLink> link) : link_(std::move(link)) {}

  void wait_before(const HostPlan& plan, std::size_t action) {
    for (const CopyWait& wait : plan.waits_before(action)) {
      wait.for_fetch ? link_->wait_for_fetch(wait.value) : link_->wait_for_store(wait.value);
    }
  }
  void store(const HostPlan& plan, ValueId value, const at::Tensor& tensor);
  // Memory of its own with what was stored, once the device has waited for it.
  [[nodiscard]] at::Tensor fetch(const HostPlan& plan, ValueId value);

 private:
  struct Stored {
    Geometry geometry;
    std::int64_t bytes;  // of the storage
    at::TensorOptions options;
  };
  std::unique_ptr<HostLink> link_;
  std::map<ValueId, Stored> stored_;
};

}  // namespace reprise
