#include "runtime/session/ledger.h"

#include <set>
#include <utility>

namespace reprise {
namespace {

// Bytes of the distinct storages for which `counts` is true, those of gradients included.
template <typename Counts>
std::int64_t bytes_where(std::span<const at::Tensor> tensors, at::Device device, const Counts& counts) {
  std::set<const c10::StorageImpl*> seen;
  std::int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.device().type() != device.type()) return;
    const c10::Storage& storage = tensor.storage();
    if (!seen.insert(storage.unsafeGetStorageImpl()).second) return;
    if (counts(storage)) bytes += static_cast<std::int64_t>(storage.nbytes());
  };
  for (const at::Tensor& tensor : tensors) {
    add(tensor);
    if (tensor.defined() && tensor.is_leaf() && tensor.grad().defined()) add(tensor.grad());
  }
  return bytes;
}

}  // namespace

Ledger::Ledger(at::Device device, std::function<std::vector<at::Tensor>()> known, MeteredSince& metered)
    : device_(device), known_(std::move(known)), metered_(metered) {}

std::int64_t Ledger::total_bytes(std::span<const at::Tensor> read) {
  if (!device_.is_cpu()) return read_meter(device_).allocated_bytes;
  if (!base_) base_ = walk(read);
  return *base_ + metered_.bytes();
}

std::int64_t Ledger::expected_bytes(std::span<const at::Tensor> read, std::int64_t absent_bytes) const {
  if (!device_.is_cpu()) return read_meter(device_).allocated_bytes;
  const std::int64_t base = base_ ? *base_ : walk(read);
  return base + metered_.bytes() + absent_bytes;
}

std::int64_t Ledger::walk(std::span<const at::Tensor> read) const {
  std::vector<at::Tensor> there = known_ ? known_() : std::vector<at::Tensor>();
  there.insert(there.end(), read.begin(), read.end());
  return bytes_where(there, device_, [this](const c10::Storage& storage) { return !metered_.add(storage.data()); });
}

std::int64_t storage_bytes(std::span<const at::Tensor> tensors, at::Device device) {
  return bytes_where(tensors, device, [](const c10::Storage&) { return true; });
}

}  // namespace reprise
