// All bytes on one device: the caller's, the model's, the optimizer's.
//
// CUDA counts by itself. On the CPU the meter counts what was allocated since the model was compiled; older memory
// (usually parameters), and memory that others allocated, is found by walking the known tensors once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/device/meter.h"

namespace reprise {

class Ledger {
 public:
  // `known` returns what the model and its optimizer hold, for a device that does not count by itself. `metered` must
  // outlive the ledger.
  Ledger(at::Device device, std::function<std::vector<at::Tensor>()> known, MeteredSince& metered);

  // The bytes allocated now, when a step is called that reads these tensors.
  [[nodiscard]] std::int64_t total_bytes(std::span<const at::Tensor> read);
  // The same before the call, when inputs of so many bytes do not exist yet.
  [[nodiscard]] std::int64_t expected_bytes(std::span<const at::Tensor> read, std::int64_t absent_bytes) const;

 private:
  // Adds known memory to what is metered; the bytes of memory that the meter does not know.
  [[nodiscard]] std::int64_t walk(std::span<const at::Tensor> read) const;

  at::Device device_;
  std::function<std::vector<at::Tensor>()> known_;
  MeteredSince& metered_;
  std::optional<std::int64_t> base_;  // what the meter did not know at the first call
};

// Bytes of the distinct storages of these tensors on the device, and of their gradients.
[[nodiscard]] std::int64_t storage_bytes(std::span<const at::Tensor> tensors, at::Device device);

}  // namespace reprise
