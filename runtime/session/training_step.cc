#include "reprise/torch/training_step.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "reprise/torch/errors.h"
#include "runtime/device/cuda_graph.h"
#include "runtime/device/meter.h"
#include "runtime/files/program_files.h"
#include "runtime/kernels/kernel_file.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/record/module_state.h"
#include "runtime/session/optimizer_state.h"
#include "runtime/session/session.h"
#include "runtime/session/sizes_that_fit.h"

namespace reprise {
namespace {

using Key = std::vector<std::int64_t>;

// The offset is left out, because it does not matter which slice a tensor is.
void add(Key& key, const at::Tensor& tensor) {
  if (!tensor.defined()) return key.push_back(-1);
  key.insert(key.end(), {static_cast<std::int64_t>(tensor.scalar_type()), tensor.is_conj(), tensor.is_neg(),
                         static_cast<std::int64_t>(tensor.device().type()), tensor.device().index(),
                         tensor.requires_grad(), tensor.dim()});
  key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
}

// Everything that the operators of a step depend on, apart from the numbers in its tensors.
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

// A step of one shape, and what its tensors are.
struct Shape {
  StepProgram step;
  std::unique_ptr<Session> session;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> latest_batch{};  // where it lies, as long as it exists

  void note(const std::vector<at::Tensor>& batch) {
    latest_batch.clear();
    for (const at::Tensor& tensor : batch) {
      latest_batch.emplace_back(tensor.defined() && tensor.has_storage() ? tensor.storage().getWeakStorageImpl()
                                                                         : c10::weak_intrusive_ptr<c10::StorageImpl>(
                                                                               c10::intrusive_ptr<c10::StorageImpl>()));
    }
  }

  // Bytes of the next batch that are not counted yet, if it is not the latest one; `metered` comes to count that.
  [[nodiscard]] std::int64_t absent_bytes(MeteredSince& metered) const {
    std::set<ValueId> values;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const std::int32_t at = step.inputs[i];
      if (at < 0 || !step.program->inputs[i]) continue;
      const auto position = static_cast<std::size_t>(at);
      const auto there = position < latest_batch.size() ? latest_batch[position].lock() : nullptr;
      if (there && metered.add(there->data())) continue;
      values.insert(step.program->inputs[i]->value);
    }
    std::int64_t bytes = 0;
    for (const ValueId value : values) bytes += step.program->values[index(value)].bytes;
    return bytes;
  }
};

// A step of any size that was read from a file, and what its sizes share once there is a second one.
struct ExportedSizes {
  StepFamily step;
  std::shared_ptr<SizeFamily> shared{};
  std::list<Key> recent{};  // sizes in use, the latest one first
};

// The state of a step that comes from a module, which is captured for each shape, or from a file, which has one shape
// or knows how it is at any.
struct TrainingStep::State {
  std::shared_ptr<torch::nn::Module> module;
  LossFunction loss;
  ModuleState loaded{};  // if there is no module
  std::optional<ExportedSizes> sizes{};
  const torch::optim::Optimizer* optimizer = nullptr;
  std::shared_ptr<SessionOptions> options = std::make_shared<SessionOptions>();
  std::map<Key, Shape> shapes{};
  Shape* latest = nullptr;

  State() { options->cuda_graphs = CudaGraphs::kOff; }

  [[nodiscard]] ModuleState current() const { return module ? state_of(*module) : loaded; }

  // batch: of a size of `family`.
  Shape& add(const Key& key, StepProgram step, std::shared_ptr<SizeFamily> family = nullptr,
             const std::vector<at::Tensor>& batch = {}) {
    const std::shared_ptr<Program> program = step.program;
    Surroundings around;
    around.caller_is_user = false;
    const bool is_member = family != nullptr;
    around.family = std::move(family);
    around.known_tensors = [this] {
      std::vector<at::Tensor> tensors = current().tensors;
      if (optimizer == nullptr) return tensors;
      for (at::Tensor& tensor : optimizer_tensors(*optimizer)) tensors.push_back(std::move(tensor));
      return tensors;
    };
    around.future_bytes = [this, program]() -> std::int64_t {
      // State that may be away needs no room; once it exists, the planner decides about it.
      if (optimizer == nullptr || options->parks()) return 0;
      return future_optimizer_bytes(*optimizer, program->device);
    };
    around.optimizer_state = [this] {
      return optimizer == nullptr ? std::vector<at::Tensor>() : optimizer_tensors(*optimizer);
    };
    around.owned_inputs = [inputs = step.inputs](std::span<const at::Tensor>) {
      std::vector<bool> owned;
      for (const std::int32_t input : inputs) owned.push_back(input < 0);
      return owned;
    };
    auto session = std::make_unique<Session>(CapturedStep{.program = program}, options, std::move(around));
    if (is_member) measure_member(*session, key, arguments_of(step, current().tensors, batch));
    latest = &shapes.emplace(key, Shape{std::move(step), std::move(session)}).first->second;
    return *latest;
  }

  // Throws where there is no hope for the size, or where the device lays results out in another way than at the size
  // where the step was profiled.
  void measure_member(Session& session, const Key& key, const std::vector<at::Tensor>& arguments) {
    try {
      session.measure_for(arguments);
    } catch (const InfeasibleBudget& refusal) {
      throw with_sizes(refusal, key, session);
    } catch (const Unsupported& error) {
      throw InputError(std::string(error.what()) + ". Export another file with a batch of this size");
    }
  }

  Shape& shape_for(const ModuleState& state, const std::vector<at::Tensor>& batch) {
    if (sizes) return shape_at(sizes->step.sizes_of(batch), batch);
    if (!module) return *latest;
    const Key key = key_of(*module, state, batch);
    const auto found = shapes.find(key);
    if (found != shapes.end()) return *(latest = &found->second);
    StepProgram step = capture_step(module->name(), state, loss, batch);
    check_step(step, state, loss, batch);
    Shape& shape = add(key, std::move(step));
    shape.note(batch);
    return shape;
  }

  // The first size is the one that the step was exported with: costs and plans of others come from there.
  Shape& shape_at(const Key& key, const std::vector<at::Tensor>& batch) {
    const auto found = shapes.find(key);
    if (found == shapes.end()) {
      if (sizes->shared == nullptr) sizes->shared = latest->session->make_family();
      StepProgram step = sizes->step.at(key);
      add(key, std::move(step), sizes->shared, batch);
    } else {
      latest = &found->second;
    }
    note_use(key);
    return *latest;
  }

  // The refusal of a size, with the sizes that would fit.
  InfeasibleBudget with_sizes(const InfeasibleBudget& refusal, const Key& key, const Session& session) {
    if (!sizes || sizes->shared == nullptr) return refusal;
    const StepFamily& step = sizes->step;
    const RefusedSize size{.program = *step.program,
                           .symbols = key,
                           .room_bytes = session.room_bytes().value_or(0),
                           .holds = [&](auto symbols) { return step.limits.hold_at(symbols); }};
    return {refusal.what() + sizes_that_fit(*sizes->shared, size, step.words()), refusal.budget_bytes(),
            refusal.smallest_budget_bytes()};
  }

  [[nodiscard]] Key latest_key() const { return sizes ? sizes->recent.front() : Key(); }

  void note_use(const Key& key) {
    sizes->recent.remove(key);
    sizes->recent.push_front(key);
    if (sizes->recent.size() <= SizeFamily::kMostMembers) return;
    shapes.erase(sizes->recent.back());
    sizes->recent.pop_back();
  }

  void take(const StepOptions& asked) {
    optimizer = asked.optimizer;
    options->budget_bytes = asked.budget_bytes;
    options->reserve_bytes = asked.reserve_bytes;
    options->host_budget_bytes = asked.host_budget_bytes;
    options->park_optimizer = asked.park_optimizer;
    options->planner = asked.planner;
    options->planning_seconds = asked.planning_seconds;
    options->cuda_graphs = asked.cuda_graphs;
    options->arena = asked.arena;
    options->slices = asked.slices;
  }
  [[nodiscard]] StepOptions asked() const {
    return {.budget_bytes = options->budget_bytes,
            .reserve_bytes = options->reserve_bytes,
            .host_budget_bytes = options->host_budget_bytes,
            .optimizer = optimizer,
            .park_optimizer = options->park_optimizer,
            .planner = options->planner,
            .planning_seconds = options->planning_seconds,
            .cuda_graphs = options->cuda_graphs,
            .arena = options->arena,
            .slices = options->slices};
  }

  // Plans the latest shape for other options, which stay in force if there is a plan.
  FoundPlan plan(const StepOptions& other) {
    if (other.budget_bytes.value_or(0) < 0 || other.host_budget_bytes < 0) {
      throw InputError("a budget cannot be negative");
    }
    if (other.park_optimizer && (other.optimizer == nullptr || other.host_budget_bytes == 0)) {
      throw InputError("park_optimizer needs an optimizer and a host_budget");
    }
    check_planner(other.planner);
    if (other.cuda_graphs == CudaGraphs::kOn) check_cuda_graphs(latest->step.program->device);
    const StepOptions before = asked();
    take(other);
    try {
      for (auto& [key, shape] : shapes) shape.session->forget_replay();  // made for other options
      FoundPlan found =
          latest->session->plan_ahead(latest->session->outside_bytes(latest->absent_bytes(options->metered)));
      if (!found.found()) take(before);
      return found;
    } catch (...) {
      take(before);
      throw;
    }
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
  install_meter();
  auto state = std::make_unique<TrainingStep::State>();
  state->module = std::move(module);
  state->loss = std::move(loss);
  state->shape_for(state->current(), batch);
  return TrainingStep(std::move(state));
}

TrainingStep load_step(const std::string& program, const std::string& parameters) {
  add_kernel_folder(kernels_path(program));
  ProgramFile file = parameters.empty() ? load_program(program) : load_program(program, parameters);
  auto state = std::make_unique<TrainingStep::State>();
  state->loaded = {.names = file.step.state_names, .tensors = std::move(file.state)};
  for (const std::int32_t i : file.step.gradients) {
    if (i >= 0) state->loaded.tensors[static_cast<std::size_t>(i)].set_requires_grad(true);
  }
  const Key key = file.family ? file.family->traced_at() : Key();
  state->add(key, std::move(file.step));
  if (file.family) {
    state->sizes = ExportedSizes{.step = *std::move(file.family)};
    state->note_use(key);
  }
  return TrainingStep(std::move(state));
}

StepSummary TrainingStep::plan(const StepOptions& options) {
  const FoundPlan found = state_->plan(options);
  if (found.found()) return summary();
  throw InfeasibleBudget(found.message, *options.budget_bytes, found.smallest_budget_bytes);
}

StepAnswer TrainingStep::try_plan(const StepOptions& options) {
  const FoundPlan found = state_->plan(options);
  if (found.found()) return {.status = found.status, .summary = summary()};
  return {.smallest_budget_bytes = found.smallest_budget_bytes};
}

at::Tensor TrainingStep::run(const std::vector<at::Tensor>& batch) {
  const ModuleState state = state_->current();
  Shape& shape = state_->shape_for(state, batch);
  shape.note(batch);
  const at::NoGradGuard no_grad;
  RunningStep running;
  auto outputs = [&] {
    try {
      return shape.session->forward(arguments_of(shape.step, state.tensors, batch), running);
    } catch (const InfeasibleBudget& refusal) {
      throw state_->with_sizes(refusal, state_->latest_key(), *shape.session);
    }
  }();
  const auto gradients = shape.session->backward(loss_seeds(*shape.step.program), running);
  add_gradients(shape.step, gradients, state.tensors);
  return std::move(*outputs.front());
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

StepSummary TrainingStep::summary() const {
  const auto plan = state_->latest->session->current();
  if (plan == nullptr) return {};
  return {.planner = plan->found.planner,
          .peak_bytes = plan->peak_bytes(),
          .time_ns = plan->found.simulation.time_ns,
          .recompute_ns = plan->found.simulation.recompute_ns,
          .wait_ns = plan->found.simulation.wait_ns,
          .host_bytes = plan->found.simulation.host_peak_bytes,
          .parked_bytes = plan->parked_bytes,
          .lower_bound_ns = plan->found.lower_bound_ns,
          .as_cuda_graph = plan->as_cuda_graphs,
          .arena_bytes = plan->arena ? plan->arena->block_bytes : 0,
          .slices = plan->form.key.slices};
}

std::int64_t TrainingStep::measured_peak_bytes() const {
  const auto plan = state_->latest->session->current();
  return plan == nullptr ? 0 : plan->measured_peak_bytes.value_or(0);
}

}  // namespace reprise
