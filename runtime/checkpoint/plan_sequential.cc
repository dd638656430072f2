// plan_sequential(): measures layer after layer, with one layer's activations in memory at a time.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "reprise/error.h"
#include "reprise/torch/checkpoint.h"
#include "runtime/checkpoint/buffer_replay.h"
#include "runtime/checkpoint/chain_plan.h"
#include "runtime/checkpoint/sequential_layers.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"

namespace reprise {
namespace {

// Removes the gradients of parameters; the end of the scope restores them.
class NoGradients {
 public:
  explicit NoGradients(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (at::Tensor& parameter : parameters_) gradients_.push_back(std::exchange(parameter.mutable_grad(), {}));
  }
  ~NoGradients() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients_[i];
  }
  NoGradients(const NoGradients&) = delete;
  NoGradients& operator=(const NoGradients&) = delete;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;
};

void finish(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

[[nodiscard]] std::int64_t now_ns(at::Device device) {
  finish(device);
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

[[nodiscard]] std::int64_t bytes_of(const at::Tensor& tensor) {
  return granted_bytes(tensor.device(), static_cast<std::int64_t>(tensor.storage().nbytes()));
}

[[nodiscard]] std::int64_t total_bytes(const std::vector<at::Tensor>& tensors, at::Device device) {
  std::int64_t total = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.device() == device) total += bytes_of(tensor);
  }
  return total;
}

[[nodiscard]] std::vector<at::Tensor> gradients_of(const Layers& layers) {
  std::vector<at::Tensor> found;
  for (const torch::nn::AnyModule& layer : layers) {
    for (const at::Tensor& parameter : layer.ptr()->parameters()) found.push_back(parameter.grad());
  }
  return found;
}

// Groups layers: a layer that writes to its input, or returns a view of it, stays with the layer before.
[[nodiscard]] std::vector<Layers> inseparable(const torch::nn::Sequential& layers, at::Tensor value) {
  const at::NoGradGuard no_grad;
  std::vector<Layers> stages;
  for (torch::nn::AnyModule layer : *layers) {
    const at::Tensor input = std::move(value);
    value = layer.forward(at::Tensor(input));
    if (stages.empty() || !value.is_alias_of(input)) stages.emplace_back();
    stages.back().push_back(std::move(layer));
  }
  return stages;
}

void measure_forward(Layers& layers, const at::Tensor& input, Stage& stage, at::Tensor& output) {
  const at::Device device = input.device();
  const std::int64_t before = read_meter(device).allocated_bytes;
  reset_meter_peak(device);
  const std::int64_t begin = now_ns(device);
  output = run_layers(layers, input);
  stage.forward_ns = now_ns(device) - begin;
  const MeterReading after = read_meter(device);
  const std::int64_t kept = after.allocated_bytes - before;
  stage.output_bytes = bytes_of(output);
  stage.saved_bytes = std::max<std::int64_t>(0, kept - stage.output_bytes);
  stage.forward_bytes = after.peak_bytes - before - kept;
}

void measure_backward(const Layers& layers, const torch::autograd::Edge& root, const at::Tensor& output, Stage& stage) {
  const at::Device device = output.device();
  const at::Tensor gradient = at::ones_like(output);
  const std::int64_t before = read_meter(device).allocated_bytes;
  reset_meter_peak(device);
  torch::autograd::Engine::get_default_engine().execute({root}, {gradient}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
  finish(device);
  stage.backward_bytes = read_meter(device).peak_bytes - before;
  stage.gradient_bytes = total_bytes(gradients_of(layers), device);
}

[[nodiscard]] Stage measure_stage(Layers& layers, bool input_gradient, at::Tensor& value) {
  Stage stage{.layers = static_cast<std::int64_t>(layers.size()),
              .state_bytes = total_bytes(buffers_of(layers), value.device())};
  const at::Tensor input = std::exchange(value, {}).detach().set_requires_grad(input_gradient);
  at::Tensor output;
  measure_forward(layers, input, stage, output);
  value = output.detach();
  const torch::autograd::Edge root = torch::autograd::impl::gradient_edge(output);
  const bool differentiable = output.requires_grad();
  output.reset();
  stage.reads_output = value.storage().use_count() > 1;  // the graph has it too
  if (differentiable) measure_backward(layers, root, value, stage);
  return stage;
}

[[nodiscard]] std::vector<Stage> measure_stages(const torch::nn::Sequential& layers, const at::Tensor& input) {
  const at::AutoGradMode gradients_on(true);
  const NoGradients no_gradients(layers->parameters());
  const std::vector<at::Tensor> buffers = layers->buffers();
  const BufferReplay buffers_stay(buffers, buffers);
  const GeneratorReplay cpu_stays(at::kCPU, generator_state(at::kCPU));
  std::optional<GeneratorReplay> device_stays;
  if (input.is_cuda()) device_stays.emplace(input.device(), generator_state(input.device()));

  std::vector<Layers> groups = inseparable(layers, input.detach().clone());
  std::vector<Stage> stages;
  at::Tensor value = input.detach().clone();
  for (Layers& group : groups) {
    stages.push_back(measure_stage(group, stages.empty() ? input.requires_grad() : true, value));
  }
  return stages;
}

}  // namespace

ChainPlan plan_sequential(const torch::nn::Sequential& layers, const at::Tensor& input, std::int64_t budget_bytes) {
  if (layers->is_empty()) throw InputError("plan_sequential() got no layers");
  if (!input.defined() || !(input.is_cpu() || input.is_cuda())) {
    throw InputError("plan_sequential() needs an input on the CPU or on a CUDA device");
  }
  const std::vector<Stage> stages = measure_stages(layers, input);
  const std::int64_t random_state = input.is_cpu() ? generator_state_bytes(at::kCPU) : 0;
  return plan_chain(stages, random_state, budget_bytes);
}

}  // namespace reprise
