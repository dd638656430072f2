// What an optimizer of libtorch keeps for its parameters, and what it will keep after its first step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace reprise {

[[nodiscard]] std::vector<at::Tensor> optimizer_tensors(const torch::optim::Optimizer& optimizer);

// Bytes of state on the device that the optimizer will have after its first step and does not have yet. Throws
// InputError if its kind is not known; reserve bytes instead.
[[nodiscard]] std::int64_t future_optimizer_bytes(const torch::optim::Optimizer& optimizer, at::Device device);

}  // namespace reprise
