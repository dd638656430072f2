#include "reprise/torch/training_step.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "reprise/error.h"
#include "runtime/files/program_files.h"
#include "runtime/record/capture_step.h"
#include "runtime/record/module_state.h"
#include "runtime/session/planned_step.h"

namespace reprise {
namespace {

using Key = std::vector<std::int64_t>;

// Without its offset: a slice is as good as another.
void add(Key& key, const at::Tensor& tensor) {
  if (!tensor.defined()) return key.push_back(-1);
  key.insert(key.end(), {static_cast<std::int64_t>(tensor.scalar_type()), tensor.is_conj(), tensor.is_neg(),
                         static_cast<std::int64_t>(tensor.device().type()), tensor.device().index(),
                         tensor.requires_grad(), tensor.dim()});
  key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
}

// All that the operators of a step depend on, beside the numbers in its tensors.
Key key_of(const torch::nn::Module& module, const ModuleState& state, const std::vector<at::Tensor>& batch) {
  Key key{static_cast<std::int64_t>(batch.size())};
  for (const at::Tensor& tensor : batch) add(key, tensor);
  for (const at::Tensor& tensor : state.tensors) add(key, tensor);
  module.apply([&](const torch::nn::Module& part) { key.push_back(part.is_training()); });
  for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
    const bool casts = at::autocast::is_autocast_enabled(device);
    key.push_back(casts ? static_cast<std::int64_t>(at::autocast::get_autocast_dtype(device)) : -1);
  }
  return key;
}

}  // namespace

// Of a module, which is captured for each shape; or of a file, which has one.
struct TrainingStep::State {
  std::shared_ptr<torch::nn::Module> module;
  LossFunction loss;
  ModuleState loaded{};  // where there is no module
  StepOptions options{};
  std::map<Key, PlannedStep> steps{};
  PlannedStep* latest = nullptr;

  [[nodiscard]] ModuleState current() const { return module ? state_of(*module) : loaded; }

  PlannedStep& step_for(const ModuleState& state, const std::vector<at::Tensor>& batch) {
    if (!module) return *latest;
    const Key key = key_of(*module, state, batch);
    auto found = steps.find(key);
    const bool is_other = latest != nullptr && (found == steps.end() || &found->second != latest);
    if (is_other && options.budget_bytes) latest->release_graph();  // two pools are more than one budget holds
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
  auto state = std::make_unique<TrainingStep::State>();
  state->module = std::move(module);
  state->loss = std::move(loss);
  state->step_for(state->current(), batch);
  return TrainingStep(std::move(state));
}

TrainingStep load_step(const std::string& program, const std::string& parameters) {
  ProgramFile file = parameters.empty() ? load_program(program) : load_program(program, parameters);
  auto state = std::make_unique<TrainingStep::State>();
  state->loaded = {.names = file.step.state_names, .tensors = std::move(file.state)};
  for (const std::int32_t i : file.step.gradients) {
    if (i >= 0) state->loaded.tensors[static_cast<std::size_t>(i)].set_requires_grad(true);
  }
  state->latest = &state->steps.emplace(Key(), PlannedStep(std::move(file.step))).first->second;
  return TrainingStep(std::move(state));
}

StepSummary TrainingStep::plan(const StepOptions& options) {
  if (options.budget_bytes && *options.budget_bytes < 0) throw InputError("a budget cannot be negative");
  for (auto& [key, step] : state_->steps) step.release_graph();  // made for other options
  const StepSummary& summary = state_->latest->plan(state_->current().tensors, options);
  state_->options = options;
  return summary;
}

at::Tensor TrainingStep::run(const std::vector<at::Tensor>& batch) {
  const ModuleState state = state_->current();
  return state_->step_for(state, batch).run(state.tensors, batch, state_->options);
}

std::vector<at::Tensor> TrainingStep::parameters() const {
  std::vector<at::Tensor> parameters = state_->current().tensors;
  std::erase_if(parameters, [](const at::Tensor& tensor) { return !tensor.requires_grad(); });
  return parameters;
}

std::vector<std::pair<std::string, at::Tensor>> TrainingStep::state() const {
  const ModuleState current = state_->current();
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (std::size_t i = 0; i < current.names.size(); ++i) named.emplace_back(current.names[i], current.tensors[i]);
  return named;
}

void TrainingStep::save(const std::string& path) const {
  ModuleState current = state_->current();
  for (const auto& [name, position] : current.other_names) {
    current.names.push_back(name);
    current.tensors.push_back(current.tensors[position]);
  }
  save_state(path, current.names, current.tensors);
}

StepSummary TrainingStep::summary() const { return state_->latest->summary(); }

std::int64_t TrainingStep::measured_peak_bytes() const { return state_->latest->measured_peak_bytes(); }

}  // namespace reprise
