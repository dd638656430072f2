#include "reprise/torch/training_step.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <utility>

#include "reprise/error.h"
#include "torch/capture_step.h"
#include "torch/planned_step.h"

namespace reprise {
namespace {

ModuleState state_of(const torch::nn::Module& module) {
  ModuleState state;
  for (const auto& item : module.named_parameters()) {
    state.names.push_back(item.key());
    state.tensors.push_back(item.value());
  }
  state.num_parameters = state.tensors.size();
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined()) continue;
    state.names.push_back(item.key());
    state.tensors.push_back(item.value());
  }
  return state;
}

// All that the operators of a step depend on, beside the numbers.
std::string key_of(const torch::nn::Module& module, const ModuleState& state, const std::vector<at::Tensor>& batch) {
  std::string key;
  for (const at::Tensor& tensor : batch)
    key += tensor.defined() ? to_string(geometry_of(tensor)) + tensor.device().str() : "-";
  for (const at::Tensor& tensor : state.tensors) key += tensor.requires_grad() ? '1' : '0';
  module.apply([&](const torch::nn::Module& part) { key += part.is_training() ? 't' : 'e'; });
  for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
    if (at::autocast::is_autocast_enabled(device)) key += at::toString(at::autocast::get_autocast_dtype(device));
  }
  return key;
}

}  // namespace

struct TrainingStep::State {
  std::shared_ptr<torch::nn::Module> module;
  LossFunction loss;
  StepOptions options{};
  std::map<std::string, PlannedStep> steps{};
  PlannedStep* latest = nullptr;

  PlannedStep& step_for(const ModuleState& state, const std::vector<at::Tensor>& batch) {
    const std::string key = key_of(*module, state, batch);
    auto found = steps.find(key);
    if (found == steps.end()) {
      StepProgram step = capture_step(module->name(), state, loss, batch);
      check_step(step, state, loss, batch);
      found = steps.emplace(key, PlannedStep(std::move(step))).first;
    }
    latest = &found->second;
    return *latest;
  }
};

TrainingStep::TrainingStep(std::unique_ptr<State> state) : state_(std::move(state)) {}
TrainingStep::~TrainingStep() = default;
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;

TrainingStep capture(std::shared_ptr<torch::nn::Module> module, LossFunction loss,
                     const std::vector<at::Tensor>& batch) {
  if (!module) throw InputError("capture() got no module");
  if (!loss) throw InputError("capture() got an empty loss");
  auto state = std::make_unique<TrainingStep::State>(std::move(module), std::move(loss));
  state->step_for(state_of(*state->module), batch);
  return TrainingStep(std::move(state));
}

StepSummary TrainingStep::plan(const StepOptions& options) {
  if (options.budget_bytes && *options.budget_bytes < 0) throw InputError("a budget cannot be negative");
  const ModuleState state = state_of(*state_->module);
  const StepSummary& summary = state_->latest->plan(options, outside_bytes(*state_->latest, state.tensors, {}));
  state_->options = options;
  return summary;
}

at::Tensor TrainingStep::run(const std::vector<at::Tensor>& batch) {
  const ModuleState state = state_of(*state_->module);
  return state_->step_for(state, batch).run(state.tensors, batch, state_->options);
}

StepSummary TrainingStep::summary() const { return state_->latest->summary(); }

std::int64_t TrainingStep::measured_peak_bytes() const { return state_->latest->measured_peak_bytes(); }

}  // namespace reprise
