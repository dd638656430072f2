// The copies of one step between the device and the host, as its plan asks for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/device/host_link.h"
#include "runtime/engine/host_plan.h"
#include "runtime/program/program.h"

namespace reprise {

class StepCopies {
 public:
  explicit StepCopies(std::unique_ptr<HostLink> link) : link_(std::move(link)) {}

  void wait_before(const HostPlan& plan, std::size_t action);
  void store(const HostPlan& plan, ValueId value, const at::Tensor& tensor);
  // Memory of its own with what was stored, once the device has waited for it.
  [[nodiscard]] at::Tensor fetch(ValueId value);

  // The device waits for what was fetched, if it has not yet.
  void finish(ValueId value);
  // The device waits for all copies that go on.
  void finish_all();
  // The plan's further waits for this value do not happen.
  void abandon(ValueId value);

 private:
  struct Stored {
    Geometry geometry;
    std::int64_t bytes;  // of the storage
    std::int64_t offset;
    at::TensorOptions options;
  };
  std::mutex mutex_;  // somebody else may bring the optimizer's state back while the step runs
  std::unique_ptr<HostLink> link_;
  std::map<ValueId, Stored> stored_;
  std::set<ValueId> coming_;  // fetched and not waited for
  std::set<ValueId> abandoned_;
};

}  // namespace reprise
