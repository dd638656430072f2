#include "runtime/record/capture_step.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "reprise/error.h"
#include "reprise/solve.h"
#include "runtime/device/generator.h"
#include "runtime/engine/executor.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/loss_graph.h"
#include "runtime/record/recorder.h"

namespace reprise {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor in_own_memory(const at::Tensor& tensor) {
  at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
  return copy.copy_(tensor);
}

// A copy in memory that does not belong to the device.
at::Tensor kept_apart(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  return plain.is_cpu() ? plain.clone() : plain.cpu();
}

// Removes gradients, and at the end of the scope restores what the step changed: gradients, contents of parameters and
// buffers, positions of generators.
class Untouched {
 public:
  Untouched(const ModuleState& state, at::Device device) : state_(state), device_(device) {
    const at::NoGradGuard no_grad;
    cpu_generator_ = generator_state(at::kCPU);
    if (!device.is_cpu()) device_generator_ = generator_state(device);
    for (const at::Tensor& tensor : state.tensors) contents_.push_back(kept_apart(tensor));
    gradients_.resize(state.tensors.size());
    versions_.reserve(state.tensors.size());
    for (std::size_t i = 0; i < gradients_.size(); ++i) {  // nothing here allocates
      at::Tensor tensor = state.tensors[i];
      gradients_[i] = std::exchange(tensor.mutable_grad(), {});
      versions_.push_back(tensor._version());
    }
  }
  ~Untouched() {
    try {
      bring_back(/*gradients=*/true);
    } catch (const std::exception&) {  // NOLINT: out of memory, or an error of the device; the first error says more
    }
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

  void bring_back(bool gradients) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < contents_.size(); ++i) {
      at::Tensor tensor = state_.tensors[i];
      tensor.mutable_grad() = gradients ? gradients_[i] : at::Tensor();
      // Some operators change buffers without changing their version counters.
      const bool may_differ = i >= state_.num_parameters && tensor.is_non_overlapping_and_dense();
      if (may_differ || tensor._version() != versions_[i]) tensor.detach().copy_(contents_[i]);
      versions_[i] = tensor._version();
    }
    set_generator_state(at::kCPU, cpu_generator_);
    if (!device_.is_cpu()) set_generator_state(device_, device_generator_);
  }

 private:
  const ModuleState& state_;
  at::Device device_;
  at::Tensor cpu_generator_;
  at::Tensor device_generator_;
  Tensors gradients_;
  Tensors contents_;
  std::vector<std::int64_t> versions_;
};

at::Device device_of(const ModuleState& state, const Tensors& batch) {
  if (!state.tensors.empty()) return state.tensors.front().device();
  return batch.empty() ? at::Device(at::kCPU) : batch.front().device();
}

bool overlaps(const at::Tensor& tensor) {
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) == 0 && tensor.size(i) > 1) return true;
  }
  return false;
}

// Copies slices of larger tensors into memory of their own: two slices of one tensor may be two separate tensors at the
// next call.
Tensors dense_batch(const std::string& name, const Tensors& batch) {
  Tensors dense;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].defined()) throw InputError("input " + std::to_string(i) + " of '" + name + "' is undefined");
    if (overlaps(batch[i])) {
      throw InputError("input " + std::to_string(i) + " of '" + name + "' is expanded: give it memory (contiguous())");
    }
    if (batch[i].requires_grad()) {
      throw InputError("input " + std::to_string(i) + " of '" + name +
                       "' requires a gradient, which only parameters get: register it as a parameter of the module");
    }
    dense.push_back(in_own_memory(batch[i]));
  }
  return dense;
}

at::Tensor loss_of(const std::string& name, const LossFunction& loss, const Tensors& batch) {
  at::Tensor value = loss(batch);
  if (!value.defined() || value.numel() != 1 || !value.requires_grad()) {
    throw InputError("the loss of '" + name +
                     "' must be a tensor of one number that depends on parameters with "
                     "requires_grad");
  }
  return value;
}

// The outcome of a step, kept in memory that does not belong to the device.
struct Outcome {
  at::Tensor loss;
  Tensors gradients;  // by position in the state; undefined: no gradient
  Tensors contents;   // of all tensors of the state
  at::Tensor cpu_generator;
  at::Tensor generator;
};

Outcome outcome_of(const at::Tensor& loss, const ModuleState& state, at::Device device) {
  Outcome outcome{.loss = kept_apart(loss),
                  .gradients = {},
                  .contents = {},
                  .cpu_generator = generator_state(at::kCPU),
                  .generator = generator_state(device)};
  for (const at::Tensor& tensor : state.tensors) {
    outcome.gradients.push_back(tensor.grad().defined() ? kept_apart(tensor.grad()) : at::Tensor());
    outcome.contents.push_back(kept_apart(tensor));
  }
  return outcome;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (a.is_same(b)) return true;  // also if both are undefined
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto bytes = [](const at::Tensor& t) { return t.detach().contiguous().reshape({-1}).view(at::kByte); };
  return a.numel() == 0 || bytes(a).equal(bytes(b));
}

// The distance between two tensors of numbers.
double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Replaces kernels that add in any order, as on a GPU, if libtorch has others. Warnings about kernels without a
// replacement are dropped, because it is this library that asks for it and not the user. Choosing algorithms by time is
// switched off, because every thread would choose for itself.
class Repeatable : c10::WarningHandler {
 public:
  Repeatable() : quiet_(this) {
    context_.setDeterministicAlgorithms(true, /*warn_only=*/true);
    context_.setDeterministicCuDNN(true);
    context_.setBenchmarkCuDNN(false);
  }
  ~Repeatable() {
    context_.setDeterministicAlgorithms(algorithms_, warn_only_);
    context_.setDeterministicCuDNN(cudnn_);
    context_.setBenchmarkCuDNN(benchmark_);
  }
  Repeatable(const Repeatable&) = delete;
  Repeatable& operator=(const Repeatable&) = delete;

 private:
  void process(const c10::Warning& /*warning*/) override {}

  at::Context& context_ = at::globalContext();
  const bool algorithms_ = context_.deterministicAlgorithms();
  const bool warn_only_ = context_.deterministicAlgorithmsWarnOnly();
  const bool cudnn_ = context_.deterministicCuDNN();
  const bool benchmark_ = context_.benchmarkCuDNN();
  const c10::WarningUtils::WarningHandlerGuard quiet_;
};

// Compares the captured step with the plain one, and allows for how much the plain step differs from itself when it
// runs again.
class Comparison {
 public:
  Comparison(const Outcome& plain, const Outcome& captured, const Outcome& again)
      : plain_(plain), captured_(captured), again_(again) {
    repeats_ = same_bits(plain.loss, again.loss);
    for (std::size_t i = 0; i < plain.contents.size(); ++i) {
      repeats_ = repeats_ && same_bits(plain.gradients[i], again.gradients[i]) &&
                 same_bits(plain.contents[i], again.contents[i]);
    }
  }

  // Names what differs from what the code computes; empty if nothing does.
  [[nodiscard]] std::string difference(const ModuleState& state) const {
    if (!agree(plain_.loss, captured_.loss, again_.loss)) return "the loss";
    for (std::size_t i = 0; i < state.names.size(); ++i) {
      if (!agree(plain_.gradients[i], captured_.gradients[i], again_.gradients[i])) {
        return "the gradient of " + state.names[i];
      }
      if (!agree(plain_.contents[i], captured_.contents[i], again_.contents[i])) return state.names[i];
    }
    const bool generators =
        same_bits(plain_.generator, captured_.generator) && same_bits(plain_.cpu_generator, captured_.cpu_generator);
    return generators ? "" : "the position of a random generator";
  }

 private:
  [[nodiscard]] bool agree(const at::Tensor& plain, const at::Tensor& captured, const at::Tensor& again) const {
    if (same_bits(plain, captured)) return true;
    if (repeats_ || !plain.defined() || !captured.defined() || !again.defined() || !plain.is_floating_point()) {
      return false;
    }
    constexpr double kTimesItsOwn = 8;
    constexpr double kOfItsLargest = 1e-3;
    const double largest = distance(plain, at::zeros_like(plain));
    return distance(plain, captured) <= std::max(kTimesItsOwn * distance(plain, again), kOfItsLargest * largest);
  }

  const Outcome& plain_;
  const Outcome& captured_;
  const Outcome& again_;
  bool repeats_ = true;
};

// The same shapes with other numbers; numbers that may be labels or indices stay within their range.
Tensors other_batch(const Tensors& batch) {
  Tensors other;
  for (const at::Tensor& tensor : batch) {
    at::Tensor copy = in_own_memory(tensor);
    if (tensor.dim() > 0) copy.copy_(tensor.flip(0));
    if (tensor.is_floating_point()) copy.mul_(0.75);
    other.push_back(std::move(copy));
  }
  return other;
}

void other_parameters(const ModuleState& state) {
  for (std::size_t i = 0; i < state.num_parameters; ++i) {
    if (state.tensors[i].is_floating_point()) state.tensors[i].detach().mul_(0.9375);
  }
}

at::Tensor run_captured(const StepProgram& step, const ModuleState& state, const Tensors& batch) {
  const Graph graph = make_graph(*step.program);
  const Executor executor(step.program, solve(graph, bare_costs(*step.program), {.planner = "none"}).plan);
  StepState running;
  auto outputs = executor.forward(arguments_of(step, state.tensors, batch), running);
  add_gradients(step, executor.backward({}, running), state.tensors);
  return std::move(*outputs.front());
}

void check_reads_batch(const Program& program, std::size_t batch_size) {
  const std::set<ValueId> read = read_values(program);
  const auto is_read = [&](const auto& use) { return use && read.contains(use->value); };
  const auto end = program.inputs.begin() + static_cast<std::ptrdiff_t>(batch_size);
  if (batch_size == 0 || std::any_of(program.inputs.begin(), end, is_read)) return;
  throw InputError("the loss of '" + program.name +
                   "' does not read the batch that it is called with: take the "
                   "tensors from its argument, or every step would train on the same ones");
}

}  // namespace

std::vector<at::Tensor> arguments_of(const StepProgram& step, const std::vector<at::Tensor>& state,
                                     const std::vector<at::Tensor>& batch) {
  Tensors arguments;
  for (const std::int32_t input : step.inputs) {
    const std::size_t position = input >= 0 ? static_cast<std::size_t>(input) : static_cast<std::size_t>(-1 - input);
    arguments.push_back(input >= 0 ? batch.at(position) : state.at(position).detach());
  }
  return arguments;
}

void add_gradients(const StepProgram& step, const std::vector<std::optional<at::Tensor>>& gradients,
                   const std::vector<at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i] || step.gradients[i] < 0) continue;
    at::Tensor parameter = state[static_cast<std::size_t>(step.gradients[i])];
    at::Tensor& there = parameter.mutable_grad();
    if (there.defined()) {
      there.add_(*gradients[i]);
    } else {
      there = *gradients[i];
    }
  }
}

StepProgram capture_step(const std::string& name, const ModuleState& state, const LossFunction& loss,
                         const std::vector<at::Tensor>& batch) {
  const at::Device device = device_of(state, batch);
  const Tensors dense = dense_batch(name, batch);
  const at::AutoGradMode gradients_on(true);
  at::autocast::clear_cache();
  const Untouched untouched(state, device);
  Recorder recorder(name, device);
  StepProgram step{.program = nullptr, .state_names = state.names, .inputs = {}, .gradients = {}};
  for (std::size_t i = 0; i < dense.size(); ++i) {
    recorder.input(dense[i], "");
    step.inputs.push_back(static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    recorder.input(state.tensors[i], state.names[i]);
    step.inputs.push_back(-1 - static_cast<std::int32_t>(i));
  }
  {
    const Recording recording(recorder);
    at::Tensor value = loss_of(name, loss, dense);
    check_parameters(value, state.tensors, name);
    recorder.end_forward(value);
    value.backward();
  }
  Tensors gradients;
  for (std::size_t i = 0; i < state.num_parameters; ++i) {
    if (!state.tensors[i].grad().defined()) continue;
    gradients.push_back(state.tensors[i].grad());
    step.gradients.push_back(static_cast<std::int32_t>(i));
  }
  step.program = std::make_shared<Program>(recorder.finish(gradients));
  at::autocast::clear_cache();
  check_reads_batch(*step.program, batch.size());
  return step;
}

void check_step(const StepProgram& step, const ModuleState& state, const LossFunction& loss,
                const std::vector<at::Tensor>& batch) {
  const at::Device device = step.program->device;
  const std::string& name = step.program->name;
  const Repeatable repeatable;
  Untouched untouched(state, device);
  const auto outcome = [&](const auto& run) {
    at::autocast::clear_cache();  // of weights with other numbers
    untouched.bring_back(/*gradients=*/false);
    {
      const at::NoGradGuard no_grad;
      other_parameters(state);
    }
    const Outcome done = outcome_of(run(), state, device);
    at::autocast::clear_cache();
    return done;
  };
  const auto run_plain = [&] {
    const at::AutoGradMode gradients_on(true);
    at::Tensor value = loss_of(name, loss, other_batch(batch));
    value.backward();
    return value;
  };
  const Outcome plain = outcome(run_plain);
  const Outcome captured = outcome([&] {
    const at::NoGradGuard no_grad;
    return run_captured(step, state, other_batch(batch));
  });
  if (Comparison(plain, captured, plain).difference(state).empty()) return;
  const std::string difference = Comparison(plain, captured, outcome(run_plain)).difference(state);
  if (difference.empty()) return;
  throw InputError("'" + name + "' cannot be captured: on other numbers " + difference +
                   " is not what the code computes. The code branches on numbers, or reads or writes "
                   "tensors by hand (accessors, data_ptr): keep that out of the step");
}

}  // namespace reprise
