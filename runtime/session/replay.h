// A planned step as two CUDA graphs, one for forward and one for backward.
//
// A graph reads and writes the same memory at every replay, so nothing of it is handed out: inputs are copied in,
// outputs and gradients are copied out. Parameters and buffers are read and changed where they lie; when one has moved,
// the step is recorded again. Random masks are kept between forward and backward, never drawn again.
//
// All memory of the graphs lies in a pool of their own, which stays reserved between steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/cuda_graph.h"
#include "runtime/engine/executor.h"
#include "runtime/session/plan_book.h"

namespace reprise {

// Which inputs of a step a replay reads where they lie, and which are copied into memory of its own.
struct ReplayInputs {
  std::vector<std::size_t> fixed;
  std::vector<std::size_t> copied;
  std::vector<at::Tensor> memory;  // by `copied`
};

class Replay {
 public:
  // Records the step without running it. Throws what recording throws, and then leaves nothing behind.
  Replay(std::shared_ptr<const Program> program, FoundPlan found, std::span<const at::Tensor> inputs,
         ReplayInputs sorted, std::int64_t resident_bytes);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  [[nodiscard]] const FoundPlan& found() const { return found_; }
  [[nodiscard]] std::shared_ptr<const Executor> executor() const { return executor_; }
  // Whether its fixed inputs are where they were.
  [[nodiscard]] bool lies_at(std::span<const at::Tensor> inputs) const;
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] std::int64_t hidden_bytes() const { return hidden_bytes_; }
  [[nodiscard]] std::int64_t pool_bytes() const { return graph_.pool_bytes(); }
  [[nodiscard]] std::int64_t cleared_bytes() const { return graph_.cleared_bytes(); }
  // Bytes of the copies that are handed out.
  [[nodiscard]] std::int64_t outputs_bytes() const { return outputs_bytes_; }
  [[nodiscard]] std::int64_t gradients_bytes() const { return gradients_bytes_; }

  [[nodiscard]] std::vector<std::optional<at::Tensor>> forward(std::span<const at::Tensor> inputs);
  // Undefined seeds stand for zeros. Throws ModifiedInPlace if what backward reads was changed since forward.
  [[nodiscard]] std::vector<std::optional<at::Tensor>> backward(std::span<const at::Tensor> seeds);

  // The result is kept from forward to backward, and shows that the memory is in use.
  [[nodiscard]] std::shared_ptr<const void> open();
  [[nodiscard]] bool pending() const { return !token_.expired(); }

 private:
  void record(std::span<const at::Tensor> inputs, std::int64_t own_bytes);

  std::shared_ptr<const Program> program_;
  FoundPlan found_;
  std::shared_ptr<const Executor> executor_;
  CudaGraph graph_;  // its pool holds the results below, which are destroyed first
  ReplayInputs inputs_;
  std::vector<const void*> addresses_;  // addresses of fixed inputs
  std::vector<std::size_t> changed_;    // inputs that the step changes
  std::vector<std::size_t> watched_;    // fixed inputs that backward reads
  std::vector<at::Tensor> seeds_;
  std::vector<std::optional<at::Tensor>> outputs_;
  std::vector<std::optional<at::Tensor>> gradients_;
  std::int64_t hidden_bytes_ = 0;
  std::int64_t outputs_bytes_ = 0;
  std::int64_t gradients_bytes_ = 0;
  std::int64_t steps_ = 0;
  std::weak_ptr<const void> token_;
  std::vector<at::Tensor> seen_;  // inputs of the pending step
  std::vector<std::uint32_t> versions_;
};

// Bytes of all replays on a device that are in use at every replay and that no allocator counts.
[[nodiscard]] std::int64_t hidden_bytes(at::Device device);

}  // namespace reprise
