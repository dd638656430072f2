#include "runtime/session/ledger.h"

#include <set>
#include <utility>

#include "runtime/device/meter.h"

namespace reprise {

Ledger::Ledger(at::Device device, std::function<std::vector<at::Tensor>()> known)
    : device_(device), known_(std::move(known)) {}

std::int64_t Ledger::total_bytes(std::span<const at::Tensor> inputs, std::int64_t program_bytes) {
  const std::int64_t counted = read_meter(device_).allocated_bytes;
  if (!device_.is_cpu()) return counted;
  if (!base_) {
    std::vector<at::Tensor> there = known_ ? known_() : std::vector<at::Tensor>();
    there.insert(there.end(), inputs.begin(), inputs.end());
    base_ = storage_bytes(there, device_) + program_bytes - counted;
  }
  return *base_ + counted;
}

std::int64_t Ledger::expected_bytes(std::int64_t absent_bytes) const {
  const std::int64_t counted = read_meter(device_).allocated_bytes;
  if (!device_.is_cpu()) return counted;
  if (base_) return *base_ + counted;
  return (known_ ? storage_bytes(known_(), device_) : 0) + absent_bytes;
}

std::int64_t storage_bytes(std::span<const at::Tensor> tensors, at::Device device) {
  std::set<const c10::StorageImpl*> seen;
  std::int64_t bytes = 0;
  const auto count = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.device().type() != device.type()) return;
    const c10::Storage& storage = tensor.storage();
    if (seen.insert(storage.unsafeGetStorageImpl()).second) bytes += static_cast<std::int64_t>(storage.nbytes());
  };
  for (const at::Tensor& tensor : tensors) {
    count(tensor);
    if (tensor.defined() && tensor.is_leaf() && tensor.grad().defined()) count(tensor.grad());
  }
  return bytes;
}

}  // namespace reprise
