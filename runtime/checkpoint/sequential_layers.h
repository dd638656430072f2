// Runs of layers of a torch::nn::Sequential.
#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <utility>
#include <vector>

namespace reprise {

using Layers = std::vector<torch::nn::AnyModule>;

[[nodiscard]] inline at::Tensor run_layers(Layers& layers, at::Tensor value) {
  for (torch::nn::AnyModule& layer : layers) value = layer.forward(std::move(value));
  return value;
}

[[nodiscard]] inline std::vector<at::Tensor> buffers_of(const Layers& layers) {
  std::vector<at::Tensor> all;
  for (const torch::nn::AnyModule& layer : layers) {
    const std::vector<at::Tensor> found = layer.ptr()->buffers();
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace reprise
