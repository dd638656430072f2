// Checkpoints for libtorch: a function keeps only its inputs, and runs once more when the backward pass arrives.
//
//   at::Tensor y = checkpoint(run_block, x, {.buffers = block->buffers()});
//   std::vector<at::Tensor> ab = checkpoint(two_to_two, {x, mask});
//   at::Tensor z = checkpoint_sequential(layers, 4, x);
//
//   const ChainPlan plan = plan_sequential(layers, x, 6'000'000);
//   at::Tensor z = checkpoint_sequential(layers, plan, x);  // each step
//
// The second run starts from what the first one started from: the states of the random generators (those of the CPU and
// of the CUDA devices of the inputs), autocast, and the values of the buffers named in the options. After it,
// generators and buffers are as they were before it, even if the function throws, so running statistics change once per
// step.
//
// The second run makes a graph of its own, and a backward pass within the backward pass goes through it, adding to the
// gradients of all parameters that the function uses. (The alternative, hooks on saved tensors, is not available in
// C++: libtorch has such hooks for all tensors of a scope only in Python's engine.) This has three consequences:
//  - only backward() goes through a checkpoint: autograd::grad(), backward() with inputs, and create_graph throw;
//  - as the function may use parameters that we cannot see, its outputs always require a gradient while gradients are
//    enabled;
//  - gradients have the bits of plain training, except that sums of three or more terms may be formed in another order:
//    where a tensor is used outside and more than once inside, and where a parameter used in several checkpoints has a
//    gradient from an earlier step. Under autocast, a weight used inside and outside is cast for each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace torch::nn {
class Sequential;
}  // namespace torch::nn

namespace reprise {

struct CheckpointOptions {
  // Tensors that the function writes in addition to its outputs, such as the running statistics of batch norm. A copy
  // of each is kept until the backward pass.
  std::vector<at::Tensor> buffers{};
  // If this is off, the function must not draw random numbers, and no state of a generator is kept.
  bool preserve_random_state = true;
};

using TensorsFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
using TensorFunction = std::function<at::Tensor(const at::Tensor&)>;

// function(inputs). Inputs and outputs may be undefined, and an output may be an input. The function must do the same
// both times and must not write to its inputs; InputError is thrown if it does. Without gradients this is a plain call.
[[nodiscard]] std::vector<at::Tensor> checkpoint(TensorsFunction function, const std::vector<at::Tensor>& inputs,
                                                 const CheckpointOptions& options = {});
[[nodiscard]] at::Tensor checkpoint(TensorFunction function, const at::Tensor& input,
                                    const CheckpointOptions& options = {});

// layers->forward(input) in `segments` parts of equally many layers, each a checkpoint with the buffers of its layers.
// The last part also takes the layers that are left over and is not a checkpoint, because its backward follows at once.
// Throws InputError if there are fewer layers than segments, or no segments.
[[nodiscard]] at::Tensor checkpoint_sequential(const torch::nn::Sequential& layers, std::int64_t segments,
                                               const at::Tensor& input, bool preserve_random_state = true);

// Which layers of a chain are checkpoints.
struct ChainPlan {
  struct Part {
    std::int64_t layers = 0;
    bool checkpoint = false;  // if not, the layers run once, and everything they save is kept
  };
  std::vector<Part> parts{};
  std::int64_t peak_bytes = 0;  // a step does not take more
};

// Finds the least recomputation with which a step stays within the budget. Runs each layer, forward and backward, to
// measure its time and memory; parameters, their gradients, buffers and generators end as they began. As times are
// measured, two calls may find different plans; the smallest budget does not depend on times.
//
// The budget is for what is allocated on the input's device between the call of the chain and the end of backward:
// activations, all gradients, workspaces, and the output, which the caller may keep. What the caller itself allocates,
// such as parts of a loss, comes on top. Throws InputError, with the smallest budget, if this one is too small.
[[nodiscard]] ChainPlan plan_sequential(const torch::nn::Sequential& layers, const at::Tensor& input,
                                        std::int64_t budget_bytes);

// layers->forward(input) with a plan that was made for these layers and an input of this size.
[[nodiscard]] at::Tensor checkpoint_sequential(const torch::nn::Sequential& layers, const ChainPlan& plan,
                                               const at::Tensor& input);

}  // namespace reprise
