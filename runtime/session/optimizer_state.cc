#include "runtime/session/optimizer_state.h"

#include <torch/optim.h>

#include <algorithm>

#include "reprise/error.h"
#include "runtime/device/meter.h"

namespace reprise {
namespace {

using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamState;

// How many tensors of a parameter's size the optimizer keeps for it after a step.
int tensors_per_parameter(const OptimizerOptions& options) {
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options)) return sgd->momentum() != 0 ? 1 : 0;
  if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options)) return adam->amsgrad() ? 3 : 2;
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options)) return adamw->amsgrad() ? 3 : 2;
  if (const auto* rms = dynamic_cast<const torch::optim::RMSpropOptions*>(&options)) {
    return 1 + (rms->momentum() > 0 ? 1 : 0) + (rms->centered() ? 1 : 0);
  }
  if (dynamic_cast<const torch::optim::AdagradOptions*>(&options) != nullptr) return 1;
  throw InputError(
      "cannot tell how much state this optimizer will keep: it is not SGD, Adam, AdamW, RMSprop or Adagrad. Give "
      "reserve_bytes instead of optimizer");
}

template <typename State, typename... Members>
bool add_tensors(OptimizerParamState& state, std::vector<at::Tensor>& tensors, Members... members) {
  auto* known = dynamic_cast<State*>(&state);
  if (known == nullptr) return false;
  for (const at::Tensor& tensor : {(known->*members)()...}) {
    if (tensor.defined()) tensors.push_back(tensor);
  }
  return true;
}

void add_state(OptimizerParamState& state, std::vector<at::Tensor>& tensors) {
  using namespace torch::optim;
  using Getter = const at::Tensor&;
  const auto of_adam = [&]<typename State>(State* /*kind*/) {
    return add_tensors<State>(state, tensors, static_cast<Getter (State::*)() const noexcept>(&State::exp_avg),
                              static_cast<Getter (State::*)() const noexcept>(&State::exp_avg_sq),
                              static_cast<Getter (State::*)() const noexcept>(&State::max_exp_avg_sq));
  };
  if (of_adam(static_cast<AdamParamState*>(nullptr)) || of_adam(static_cast<AdamWParamState*>(nullptr))) return;
  if (add_tensors<SGDParamState>(
          state, tensors, static_cast<Getter (SGDParamState::*)() const noexcept>(&SGDParamState::momentum_buffer))) {
    return;
  }
  if (add_tensors<AdagradParamState>(
          state, tensors, static_cast<Getter (AdagradParamState::*)() const noexcept>(&AdagradParamState::sum))) {
    return;
  }
  using Rms = RMSpropParamState;
  add_tensors<Rms>(state, tensors, static_cast<Getter (Rms::*)() const noexcept>(&Rms::square_avg),
                   static_cast<Getter (Rms::*)() const noexcept>(&Rms::momentum_buffer),
                   static_cast<Getter (Rms::*)() const noexcept>(&Rms::grad_avg));
}

std::int64_t bytes_on(const at::Tensor& tensor, at::Device device) {
  if (tensor.device().type() != device.type()) return 0;
  return granted_bytes(device, static_cast<std::int64_t>(tensor.nbytes()));
}

}  // namespace

std::vector<at::Tensor> optimizer_tensors(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> tensors;
  for (const auto& [key, state] : optimizer.state()) add_state(*state, tensors);
  return tensors;
}

std::int64_t future_optimizer_bytes(const torch::optim::Optimizer& optimizer, at::Device device) {
  std::int64_t bytes = 0;
  for (const auto& group : optimizer.param_groups()) {
    const int count = tensors_per_parameter(group.options());
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.requires_grad()) bytes += count * bytes_on(parameter, device);
    }
  }
  for (const at::Tensor& tensor : optimizer_tensors(optimizer)) bytes -= bytes_on(tensor, device);
  return std::max<std::int64_t>(0, bytes);
}

}  // namespace reprise
