#include "runtime/record/module_state.h"

#include <torch/nn/module.h>

#include <map>

namespace reprise {

ModuleState state_of(const torch::nn::Module& module) {
  ModuleState state;
  std::map<const at::TensorImpl*, std::size_t> known;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [found, is_new] = known.try_emplace(tensor.unsafeGetTensorImpl(), state.names.size());
    if (!is_new) {
      state.other_names.emplace_back(name, found->second);
      return;
    }
    state.names.push_back(name);
    state.tensors.push_back(tensor);
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  state.num_parameters = state.tensors.size();
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return state;
}

}  // namespace reprise
