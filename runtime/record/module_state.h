// The tensors of a module that a training step reads or changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reprise {

// Parameters, then buffers, as the module has them; each once, by its first name.
struct ModuleState {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  std::size_t num_parameters = 0;
  std::vector<std::pair<std::string, std::size_t>> other_names{};  // with the position of what they name
};

[[nodiscard]] ModuleState state_of(const torch::nn::Module& module);

}  // namespace reprise
