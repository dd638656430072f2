#include "runtime/session/graphed_step.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/cuda_graph.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/engine/executor.h"
#include "runtime/program/tensor_memory.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/step_plan.h"

namespace reprise {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int kStepsBefore = 2;       // without a graph: libraries choose algorithms
constexpr int kMaxRecordings = 8;     // that were of little use: parameters that move all the time are not for graphs
constexpr std::int64_t kOfUse = 100;  // steps that pay for a recording
constexpr int kMaxTries = 6;          // to make the pool fit
constexpr double kSpare = 0.005;  // of the budget, at first: a loss that the caller keeps is no reason to record again

// Lives as long as the process: steps may end with it.
struct Hidden {
  std::mutex mutex;
  std::map<c10::DeviceIndex, std::int64_t> bytes;

  static std::int64_t add(at::Device device, std::int64_t more) {
    static auto* hidden = new Hidden;
    const std::lock_guard lock(hidden->mutex);
    return hidden->bytes[numbered(device).index()] += more;
  }
};

std::int64_t dense_bytes(at::Device device, const Geometry& geometry) {
  return granted_bytes(
      device, c10::multiply_integers(geometry.sizes) * static_cast<std::int64_t>(c10::elementSize(geometry.dtype)));
}

bool lies_on(const at::Tensor& tensor, at::Device device) { return tensor.device() == numbered(device); }

std::size_t position_in_state(std::int32_t input) { return static_cast<std::size_t>(-1 - input); }

// Adds to gradients that are there; a copy becomes the gradient of a parameter that has none. By few kernels.
void hand_out(const StepProgram& step, const std::vector<std::optional<at::Tensor>>& gradients, const Tensors& state) {
  Tensors there;
  Tensors added;
  Tensors copies;
  Tensors copied;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i] || step.gradients[i] < 0) continue;
    const at::Tensor& gradient = state[static_cast<std::size_t>(step.gradients[i])].grad();
    (gradient.defined() ? there : copies).push_back(gradient.defined() ? gradient : at::empty_like(*gradients[i]));
    (gradient.defined() ? added : copied).push_back(*gradients[i]);
  }
  if (!there.empty()) at::_foreach_add_(there, added);
  if (!copies.empty()) at::_foreach_copy_(copies, copied);
  std::size_t next = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i] || step.gradients[i] < 0) continue;
    at::Tensor parameter = state[static_cast<std::size_t>(step.gradients[i])];
    if (!parameter.grad().defined()) parameter.mutable_grad() = copies[next++];
  }
}

// Of an exception of libtorch's the rest is a trace of calls.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::int64_t hidden_bytes(at::Device device) { return Hidden::add(device, 0); }

// The graph goes last: its pool holds the results.
struct GraphedStep::Recorded {
  Recorded(std::shared_ptr<const Program> program, Solution found)
      : graph(program->device), solution(std::move(found)), executor(std::move(program), solution.plan) {}
  ~Recorded() { Hidden::add(executor.program().device, -hidden); }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  CudaGraph graph;
  Solution solution;
  Executor executor;
  Tensors inputs;                      // by position in the batch, which is copied there
  std::vector<const void*> addresses;  // of what is read where it lies
  StepResult result;
  StepOptions options;
  std::int64_t hidden = 0;
  std::int64_t steps = 0;
};

GraphedStep::GraphedStep(StepProgram step, std::int64_t resident_bytes)
    : step_(std::move(step)), finder_(make_graph(*step_.program, RandomCalls::kOnce)), resident_bytes_(resident_bytes) {
  const Program& program = *step_.program;
  check_cuda_graphs(program.device);
  const std::set<ValueId> read = read_values(program);
  const std::set<ValueId> changed = overwritten_values(program);
  for (const auto& use : program.inputs) {
    read_.push_back(use && read.contains(use->value) ? 1 : 0);
    changed_.push_back(use && changed.contains(use->value) ? 1 : 0);
  }
}

GraphedStep::~GraphedStep() = default;

const Solution& GraphedStep::solution() const { return recorded_->solution; }

bool GraphedStep::ready(const Tensors& state, const Tensors& batch, const StepOptions& options,
                        std::int64_t outside_bytes) {
  const at::Device device = step_.program->device;
  base_bytes_ = outside_bytes + resident_bytes_ - read_meter(device).allocated_bytes - hidden_bytes(device);
  if (!takes(batch)) {  // the executor says why
    release();
    return false;
  }
  if (!refused_.empty() && refused_for_ == options) throw InputError(refused_);
  refused_.clear();
  if (recorded_ != nullptr && !is_current(state, options)) drop();
  if (recorded_ != nullptr) return true;
  if (steps_before_ < kStepsBefore) {
    ++steps_before_;
    return false;
  }
  record(state, batch, options);
  return true;
}

bool GraphedStep::takes(const Tensors& batch) const {
  const Program& program = *step_.program;
  for (std::size_t i = 0; i < step_.inputs.size(); ++i) {
    if (step_.inputs[i] < 0 || !program.inputs[i]) continue;
    const auto position = static_cast<std::size_t>(step_.inputs[i]);
    if (position >= batch.size() || !batch[position].defined()) return false;
    Geometry geometry = geometry_of(batch[position]);
    geometry.offset = program.inputs[i]->geometry.offset;
    if (geometry != program.inputs[i]->geometry) return false;
  }
  return true;
}

bool GraphedStep::is_current(const Tensors& state, const StepOptions& options) const {
  if (options != recorded_->options || addresses_of(state) != recorded_->addresses) return false;
  return !options.budget_bytes || peak_bytes(state) + options.reserve_bytes <= *options.budget_bytes;
}

std::vector<const void*> GraphedStep::addresses_of(const Tensors& state) const {
  std::vector<const void*> addresses;
  for (std::size_t i = 0; i < step_.inputs.size(); ++i) {
    if (step_.inputs[i] >= 0 || read_[i] == 0) continue;
    addresses.push_back(state.at(position_in_state(step_.inputs[i])).const_data_ptr());
  }
  return addresses;
}

std::int64_t GraphedStep::total_bytes() const {
  const at::Device device = step_.program->device;
  return base_bytes_ + read_meter(device).allocated_bytes + hidden_bytes(device);
}

// The loss, and gradients of parameters that have none.
std::int64_t GraphedStep::copied_bytes(const Tensors& state) const {
  const Program& program = *step_.program;
  std::int64_t bytes = dense_bytes(program.device, program.forward_outputs.front()->geometry);
  for (std::size_t i = 0; i < program.gradients.size(); ++i) {
    if (!program.gradients[i] || step_.gradients[i] < 0) continue;
    const bool is_there = state[static_cast<std::size_t>(step_.gradients[i])].grad().defined();
    if (!is_there) bytes += dense_bytes(program.device, program.gradients[i]->geometry);
  }
  return bytes;
}

std::int64_t GraphedStep::peak_bytes(const Tensors& state) const { return total_bytes() + copied_bytes(state); }

at::Tensor GraphedStep::run(const Tensors& state, const Tensors& batch) {
  Recorded& recorded = *recorded_;
  const at::NoGradGuard no_grad;
  recorded.graph.begin();
  for (std::size_t i = 0; i < step_.inputs.size(); ++i) {
    if (step_.inputs[i] < 0 || read_[i] == 0) continue;
    const auto position = static_cast<std::size_t>(step_.inputs[i]);
    recorded.inputs[position].copy_(batch[position]);
  }
  recorded.graph.replay();
  ++recorded.steps;
  for (std::size_t i = 0; i < step_.inputs.size(); ++i) {
    if (changed_[i] == 0) continue;
    if (step_.inputs[i] < 0) {
      bump_version(state[position_in_state(step_.inputs[i])]);
    } else {
      const auto position = static_cast<std::size_t>(step_.inputs[i]);
      at::Tensor(batch[position]).copy_(recorded.inputs[position]);
    }
  }
  at::Tensor loss = recorded.result.outputs.front()->clone();
  hand_out(step_, recorded.result.gradients, state);
  recorded.graph.end();
  return loss;
}

// For another batch: that is no fault of this one.
void GraphedStep::release() {
  if (recorded_ != nullptr) --recordings_;
  recorded_.reset();
  steps_before_ = 0;
}

void GraphedStep::drop() {
  if (recorded_ != nullptr && recorded_->steps >= kOfUse) --recordings_;
  recorded_.reset();
}

// Until the options change.
void GraphedStep::refuse(const std::string& why, const StepOptions& options) {
  recorded_.reset();
  recordings_ = 0;
  refused_ = "'" + step_.program->name + "' cannot run as a CUDA graph: " + why + ", or plan it with CudaGraphs::kOff";
  refused_for_ = options;
  throw InputError(refused_);
}

// A graph knows the memory of its device; what it finds elsewhere stays what it was at the recording.
void GraphedStep::check_devices(const Tensors& arguments, const StepOptions& options) {
  const Program& program = *step_.program;
  const auto check = [&](const at::Tensor& tensor, const std::string& what) {
    if (lies_on(tensor, program.device)) return;
    refuse(what + " lies on " + tensor.device().str() + ". Move it to " + program.device.str(), options);
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (read_[i] == 0) continue;
    const std::int32_t input = step_.inputs[i];
    check(arguments[i], input >= 0 ? "input " + std::to_string(input) : step_.state_names[position_in_state(input)]);
  }
  for (const auto& [value, tensor] : program.constants) check(tensor, "a tensor that the loss reads beside its batch");
}

void GraphedStep::record(const Tensors& state, const Tensors& batch, const StepOptions& options) {
  const Program& program = *step_.program;
  if (recordings_ >= kMaxRecordings) {
    refuse("its parameters or the memory beside it changed " + std::to_string(recordings_) +
               " times. Keep them as they are",
           options);
  }
  check_devices(arguments_of(step_, state, batch), options);
  Tensors inputs(batch.size());
  for (std::size_t i = 0; i < step_.inputs.size(); ++i) {
    if (step_.inputs[i] < 0 || !program.inputs[i]) continue;
    const Geometry& geometry = program.inputs[i]->geometry;
    const at::Tensor memory =
        at::empty({extent_bytes(geometry)}, at::TensorOptions().dtype(at::kByte).device(program.device));
    inputs[static_cast<std::size_t>(step_.inputs[i])] = view_of(memory, geometry);
  }
  const std::int64_t limit = options.budget_bytes.value_or(0) - options.reserve_bytes;
  std::optional<std::int64_t> goal;
  if (options.budget_bytes) {
    goal = limit - (peak_bytes(state) - resident_bytes_) -
           static_cast<std::int64_t>(kSpare * static_cast<double>(*options.budget_bytes));
  }
  std::int64_t cleared = 0;  // by the first recording; later ones find nothing
  for (int i = 0; i < kMaxTries; ++i) {
    Solution found = finder_.find(options, goal);
    if (!fits(found, goal)) {
      refuse("no plan fits inside " + std::to_string(*options.budget_bytes) +
                 " bytes beside the copies of batch and gradients. Raise the budget to about " +
                 std::to_string(*options.budget_bytes - *goal + found.smallest_budget_bytes),
             options);
    }
    recorded_ = recorded_with(std::move(found), state, inputs, options);
    cleared = std::max(cleared, recorded_->graph.cleared_bytes());
    const std::int64_t over = peak_bytes(state) + cleared - limit;
    if (!goal || over <= 0) {
      ++recordings_;
      return;
    }
    goal = recorded_->solution.simulation.peak_bytes - over;
    recorded_.reset();
  }
  refuse("its pool did not fit the budget in " + std::to_string(kMaxTries) + " tries. Raise the budget", options);
}

std::unique_ptr<GraphedStep::Recorded> GraphedStep::recorded_with(Solution found, const Tensors& state,
                                                                  const Tensors& inputs, const StepOptions& options) {
  const at::Device device = step_.program->device;
  const std::int64_t own_bytes = std::max<std::int64_t>(1, found.simulation.peak_bytes - resident_bytes_);
  auto recorded = std::make_unique<Recorded>(step_.program, std::move(found));
  recorded->inputs = inputs;
  recorded->addresses = addresses_of(state);
  recorded->options = options;
  const at::Tensor random = generator_state(at::kCPU);
  const GeneratorReplay as_before(at::kCPU, random);
  try {
    recorded->graph.record([to = recorded.get(), arguments = arguments_of(step_, state, inputs), own_bytes, device] {
      // One block for all: it is split as the step goes on, and leaves few gaps.
      (void)at::empty({own_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
      to->result = run_step(to->executor, arguments);
    });
  } catch (const c10::OutOfMemoryError&) {
    throw;  // no fault of the step: the next one tries again
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    refuse("an operator cannot be recorded (" + first_line(error.what()) + "). Move it out of the step", options);
  }
  if (!generator_state(at::kCPU).equal(random)) {
    refuse("it draws random numbers on the CPU. Draw them on " + device.str(), options);
  }
  recorded->hidden = recorded->graph.hidden_bytes();
  Hidden::add(device, recorded->hidden);
  return recorded;
}

}  // namespace reprise
