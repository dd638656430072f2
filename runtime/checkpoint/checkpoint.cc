// checkpoint(): one node of the outer graph per call, and a graph made and used up within that node's backward.
#include "reprise/torch/checkpoint.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "reprise/error.h"
#include "runtime/checkpoint/buffer_replay.h"
#include "runtime/device/generator.h"

namespace reprise {
namespace {

namespace autograd = torch::autograd;
using Tensors = std::vector<at::Tensor>;

// This is a std::shared_ptr in older libtorch and an intrusive pointer in newer releases.
using NodePointer = std::remove_cvref_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

template <typename Made, typename... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<autograd::Node>>) {
    return std::shared_ptr<Made>(new Made(std::forward<Arguments>(arguments)...), [](Made* node) {
      deleteNode(node);
    });  // libtorch's function, which frees long chains in a loop
  } else {
    return c10::make_intrusive<Made>(std::forward<Arguments>(arguments)...);
  }
}

class Autocast {
 public:
  [[nodiscard]] static Autocast current() {
    Autocast found;
    for (std::size_t i = 0; i < kDevices.size(); ++i) {
      found.enabled_[i] = at::autocast::is_autocast_enabled(kDevices[i]);
      found.dtypes_[i] = at::autocast::get_autocast_dtype(kDevices[i]);
    }
    found.cache_ = at::autocast::is_autocast_cache_enabled();
    return found;
  }
  // Casts of weights kept from outside belong to another graph, and those made here would outlive theirs.
  void apply() const {
    at::autocast::clear_cache();
    for (std::size_t i = 0; i < kDevices.size(); ++i) {
      at::autocast::set_autocast_enabled(kDevices[i], enabled_[i]);
      at::autocast::set_autocast_dtype(kDevices[i], dtypes_[i]);
    }
    at::autocast::set_autocast_cache_enabled(cache_);
  }

 private:
  static constexpr std::array<at::DeviceType, 2> kDevices = {at::kCPU, at::kCUDA};
  std::array<bool, kDevices.size()> enabled_{};
  std::array<at::ScalarType, kDevices.size()> dtypes_{};
  bool cache_ = true;
};

class AutocastReplay {
 public:
  explicit AutocastReplay(const Autocast& saved) : current_(Autocast::current()) { saved.apply(); }
  ~AutocastReplay() { current_.apply(); }
  AutocastReplay(const AutocastReplay&) = delete;
  AutocastReplay& operator=(const AutocastReplay&) = delete;

 private:
  Autocast current_;
};

// A weight cast without gradients must not serve later calls that need one.
class NoAutocastCache {
 public:
  NoAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(enabled_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  bool enabled_ = at::autocast::is_autocast_cache_enabled();
};

struct RandomState {
  at::Device device;
  at::Tensor state;
};

[[nodiscard]] std::vector<RandomState> random_states(const Tensors& inputs) {
  std::vector<RandomState> states = {{at::kCPU, generator_state(at::kCPU)}};
  for (const at::Tensor& input : inputs) {
    if (!input.defined() || !input.is_cuda()) continue;
    const at::Device device = input.device();
    const auto same = [&](const RandomState& known) { return known.device == device; };
    if (std::none_of(states.begin(), states.end(), same)) states.push_back({device, generator_state(device)});
  }
  return states;
}

// Where the inner graph ends at an input: keeps the gradient as it comes, not made to fit the input's strides.
struct GradientSink : autograd::Node {
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    gradient = std::move(gradients[0]);
    return {};
  }
  at::Tensor gradient;
};
using SinkPointer = decltype(make_node<GradientSink>());

struct CheckpointNode : autograd::Node {
  [[nodiscard]] std::string name() const override { return "reprise::checkpoint"; }
  autograd::variable_list apply(autograd::variable_list&& gradients) override;
  void release_variables() override;
  // Must be called before the first run; notes the state that the first run finds.
  void save(const Tensors& inputs, const CheckpointOptions& options);

  TensorsFunction function;
  std::size_t num_outputs = 0;

 private:
  [[nodiscard]] std::vector<SinkPointer> inner_inputs(Tensors& inputs) const;
  [[nodiscard]] Tensors run_again(const Tensors& inputs) const;
  void check_backward() const;

  std::vector<autograd::SavedVariable> inputs_;
  std::vector<RandomState> random_;
  Tensors buffers_;
  Tensors buffer_values_;
  Autocast autocast_;
};

void CheckpointNode::save(const Tensors& inputs, const CheckpointOptions& options) {
  for (const at::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  if (options.preserve_random_state) random_ = random_states(inputs);
  buffers_ = options.buffers;
  buffer_values_ = copies(buffers_);
  autocast_ = Autocast::current();
}

void CheckpointNode::release_variables() {
  const std::lock_guard lock(mutex_);
  function = nullptr;
  inputs_.clear();
  random_.clear();
  buffers_.clear();
  buffer_values_.clear();
}

void CheckpointNode::check_backward() const {
  if (!function) {
    throw InputError("a second backward pass through a checkpoint: give the first one retain_graph = true");
  }
  if (!autograd::Engine::get_default_engine().is_checkpoint_valid()) {
    throw InputError(
        "autograd::grad() and backward() with inputs do not go through a checkpoint, which adds to the gradients of "
        "all parameters it uses: call backward() without inputs, or remove the checkpoint");
  }
  if (at::GradMode::is_enabled()) {
    throw InputError("a checkpoint has no second derivative: call backward() without create_graph");
  }
}

// Detaches the saved inputs from the outer graph and returns a sink for each one that requires a gradient.
std::vector<SinkPointer> CheckpointNode::inner_inputs(Tensors& inputs) const {
  std::vector<SinkPointer> sinks;
  for (const autograd::SavedVariable& saved : inputs_) {
    const at::Tensor outer = saved.unpack();
    inputs.push_back(outer.defined() ? outer.detach() : outer);
    sinks.emplace_back();
    if (outer.defined() && outer.requires_grad()) {
      sinks.back() = make_node<GradientSink>();
      autograd::set_history(inputs.back(), NodePointer(sinks.back()));
    }
  }
  return sinks;
}

Tensors CheckpointNode::run_again(const Tensors& inputs) const {
  const at::AutoGradMode gradients_on(true);
  const AutocastReplay autocast(autocast_);
  std::deque<GeneratorReplay> generators;
  for (const RandomState& saved : random_) generators.emplace_back(saved.device, saved.state);
  Tensors outputs = function(inputs);
  if (outputs.size() != num_outputs) {
    throw InputError("the function of a checkpoint returned " + std::to_string(num_outputs) + " outputs and then " +
                     std::to_string(outputs.size()) + ": it must do the same both times");
  }
  return outputs;
}

autograd::variable_list CheckpointNode::apply(autograd::variable_list&& gradients) {
  const std::lock_guard lock(mutex_);
  check_backward();
  std::vector<SinkPointer> sinks;
  autograd::edge_list roots;
  Tensors root_gradients;
  const BufferReplay buffers(buffers_, buffer_values_);
  {
    Tensors inputs;
    sinks = inner_inputs(inputs);
    const Tensors outputs = run_again(inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(autograd::impl::gradient_edge(outputs[i]));
      root_gradients.push_back(std::move(gradients[i]));
    }
  }  // Outputs that no backward reads are freed here.
  if (!roots.empty()) {
    autograd::Engine::get_default_engine().execute(roots, root_gradients, /*keep_graph=*/false, /*create_graph=*/false,
                                                   /*accumulate_grad=*/true);
  }
  autograd::variable_list result;
  for (const SinkPointer& sink : sinks) result.push_back(sink ? std::move(sink->gradient) : at::Tensor());
  return result;
}

[[nodiscard]] std::vector<std::int64_t> versions(const Tensors& tensors) {
  std::vector<std::int64_t> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.defined() ? tensor._version() : 0);
  return result;
}

void check_unchanged(const Tensors& inputs, const std::vector<std::int64_t>& before) {
  const std::vector<std::int64_t> after = versions(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (after[i] == before[i]) continue;
    throw InputError("the function of a checkpoint wrote to its input " + std::to_string(i) +
                     ", from which it must run again: let it begin after the in-place operation, or with a copy");
  }
}

[[nodiscard]] Tensors first_run(const TensorsFunction& function, const Tensors& inputs) {
  const at::NoGradGuard no_grad;
  const NoAutocastCache no_cache;
  const std::vector<std::int64_t> before = versions(inputs);
  Tensors outputs = function(inputs);
  check_unchanged(inputs, before);
  return outputs;
}

}  // namespace

std::vector<at::Tensor> checkpoint(TensorsFunction function, const std::vector<at::Tensor>& inputs,
                                   const CheckpointOptions& options) {
  if (!function) throw InputError("checkpoint() got an empty function");
  if (!at::GradMode::is_enabled()) return function(inputs);
  const auto node = make_node<CheckpointNode>();
  node->set_next_edges(autograd::collect_next_edges(inputs));
  node->save(inputs, options);
  Tensors outputs = first_run(function, inputs);
  node->function = std::move(function);
  node->num_outputs = outputs.size();
  for (at::Tensor& output : outputs) {
    const bool differentiable = output.defined() && autograd::isDifferentiableType(output.scalar_type());
    if (differentiable) output = output.detach();  // it may be an input, or a view of one
    autograd::set_history(differentiable ? output : at::Tensor(), NodePointer(node));
  }
  return outputs;
}

at::Tensor checkpoint(TensorFunction function, const at::Tensor& input, const CheckpointOptions& options) {
  if (!function) throw InputError("checkpoint() got an empty function");
  const auto one = [function = std::move(function)](const Tensors& inputs) { return Tensors{function(inputs[0])}; };
  return checkpoint(TensorsFunction(one), Tensors{input}, options)[0];
}

}  // namespace reprise
