// All bytes on one device: the caller's, the model's, the optimizer's.
//
// CUDA counts by itself. On the CPU the meter counts from its installation on; memory that was allocated before
// (usually parameters) is found by walking the known tensors once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace reprise {

class Ledger {
 public:
  // `known` returns what the model and its optimizer hold. It is called once, if the device does not count by itself.
  Ledger(at::Device device, std::function<std::vector<at::Tensor>()> known);

  // The bytes allocated now, when the step is called with these inputs; `program_bytes` are the program's own.
  [[nodiscard]] std::int64_t total_bytes(std::span<const at::Tensor> inputs, std::int64_t program_bytes);
  // The same before the first call, when inputs of so many bytes may not exist yet.
  [[nodiscard]] std::int64_t expected_bytes(std::int64_t absent_bytes) const;

 private:
  at::Device device_;
  std::function<std::vector<at::Tensor>()> known_;
  std::optional<std::int64_t> base_;  // what the meter does not count
};

// Bytes of the distinct storages of these tensors on the device, and of their gradients.
[[nodiscard]] std::int64_t storage_bytes(std::span<const at::Tensor> tensors, at::Device device);

}  // namespace reprise
