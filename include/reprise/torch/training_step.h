// A training step of ordinary libtorch code that runs inside a budget of bytes.
//
//   auto loss = [&](const std::vector<at::Tensor>& batch) {
//     return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
//   };
//   reprise::TrainingStep step = reprise::capture(net, loss, {images, labels});
//   step.plan({.budget_bytes = 6'000'000'000});
//   for (...) {
//     optimizer.zero_grad();
//     at::Tensor value = step.run({images, labels});   // fills .grad of the parameters, updates buffers once
//     optimizer.step();
//   }
//
// The step is captured below autograd. It runs the operators that the code called, and some of them again. Loss,
// gradients, buffers and the position of the random generators are bit for bit those of plain training.
//
// capture() runs the step as it is, so one plain step has to fit the device. It then checks what it captured: with
// other numbers in inputs and parameters, the captured and the plain step have to agree. Afterwards everything is as it
// was before.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reprise/solve.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace reprise {

// The loss of a batch, a tensor of one number.
using LossFunction = std::function<at::Tensor(const std::vector<at::Tensor>& batch)>;

// Whether steps run as CUDA graphs, which are recorded once and then replayed at almost no cost to the CPU. With kOn,
// the first two steps in a row with the same shape run without graphs, and the third is recorded. kAuto does the same
// only if issuing the operators takes about as long as running them. The batch, the loss and the gradients take their
// bytes twice.
enum class CudaGraphs : std::uint8_t { kOff, kOn, kAuto };

// Whether steps run in an arena: one block of memory, kept between steps, in which everything that a step makes has an
// address that is known beforehand. Then what is reserved is what was planned. kAuto: on the CPU.
enum class UseArena : std::uint8_t { kOff, kOn, kAuto };

// Whether calls with large results may run slice by slice, where the budget is missed or dear without: never; where the
// bits stay those of plain training; or also where slices round differently, and gradients of weights are added up over
// them.
enum class UseSlices : std::uint8_t { kOff, kExact, kClose };

struct StepOptions {
  // The highest number of bytes that may be allocated on the device while the step runs, including parameters,
  // gradients, inputs and whatever else is there. On the CPU, memory that does not belong to the module, the batch or
  // the optimizer is counted from the first step on. Without a budget there is no recomputation.
  std::optional<std::int64_t> budget_bytes{};
  std::int64_t reserve_bytes = 0;  // the part of the budget to leave free for later allocations
  // On an accelerator, how much memory of the host a step may store values in, which then wait there until backward
  // reads them, wherever that is cheaper than computing them again. It is pinned when the first such step runs.
  std::int64_t host_budget_bytes = 0;
  // The optimizer's state is counted before it exists. The optimizer must outlive the steps it is given for.
  const torch::optim::Optimizer* optimizer = nullptr;
  bool park_optimizer = false;  // its state, too, may wait in the host's memory while a step runs
  std::string planner = "auto";
  double planning_seconds = 10;
  CudaGraphs cuda_graphs = CudaGraphs::kOff;
  UseArena arena = UseArena::kOff;
  UseSlices slices = UseSlices::kExact;

  friend bool operator==(const StepOptions&, const StepOptions&) = default;
};

struct StepSummary {
  std::string planner;
  std::int64_t peak_bytes = 0;                   // predicted, for everything that the budget covers
  std::int64_t time_ns = 0;                      // sum over all operators of their measured times
  std::int64_t recompute_ns = 0;                 // the part of it that is recomputation
  std::int64_t wait_ns = 0;                      // the part of it in which the device waits for copies to the host
  std::int64_t host_bytes = 0;                   // the most that lies in the host's memory at once
  std::int64_t parked_bytes = 0;                 // of the optimizer's state, that waits there during the step
  std::optional<std::int64_t> lower_bound_ns{};  // no plan with this order is faster within the budget
  bool as_cuda_graph = false;                    // whether the latest run was one
  std::int64_t arena_bytes = 0;                  // of the block in which the latest run lay; 0: it had none
  std::int64_t slices = 1;                       // in which a chain of calls runs; 1: no chain does
};

// The answer to whether a budget can be kept.
struct StepAnswer {
  Status status = Status::kInfeasible;
  StepSummary summary{};                   // if it can
  std::int64_t smallest_budget_bytes = 0;  // if it cannot: a budget that can
};

class TrainingStep {
 public:
  ~TrainingStep();
  TrainingStep(TrainingStep&&) noexcept;
  TrainingStep& operator=(TrainingStep&&) noexcept;

  // Applies to this and all later shapes. Throws InfeasibleBudget, with the smallest budget found, if this one cannot
  // be kept, and InputError if CUDA graphs are not available here. run() throws it if the step cannot be recorded.
  StepSummary plan(const StepOptions& options);
  // Does the same, but a budget that cannot be kept is returned as an answer and leaves the options as they were.
  [[nodiscard]] StepAnswer try_plan(const StepOptions& options);

  // Forward and backward: adds to the gradients of the parameters, or makes them; returns the loss. After a batch of
  // another shape, a switch between train() and eval(), or a change of requires_grad, the step is captured and planned
  // again.
  at::Tensor run(const std::vector<at::Tensor>& batch);

  // The tensors that get gradients, for an optimizer; and everything that the step reads or changes besides the batch.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state() const;
  // Parameters and buffers by name, as a file that Python's torch.load(path, weights_only=True) reads as a dict.
  void save(const std::string& path) const;

  // Both describe the latest run.
  [[nodiscard]] StepSummary summary() const;
  [[nodiscard]] std::int64_t measured_peak_bytes() const;

 private:
  struct State;
  explicit TrainingStep(std::unique_ptr<State> state);
  friend TrainingStep capture(std::shared_ptr<torch::nn::Module> module, LossFunction loss,
                              const std::vector<at::Tensor>& batch);
  friend TrainingStep load_step(const std::string& program, const std::string& parameters);
  std::unique_ptr<State> state_;
};

// Throws InputError if the step cannot be captured, with the operator and what to do, or if the captured step does not
// do what the code does.
[[nodiscard]] TrainingStep capture(std::shared_ptr<torch::nn::Module> module, LossFunction loss,
                                   const std::vector<at::Tensor>& batch);

// A step that reprise.export has written in Python: net.program.json, and net.parameters.pt beside it or another file
// of the same tensors, such as one that save() wrote; the generated kernels of a fused step lie beside it in
// net.kernels. Its batches must have the shapes it was exported with, or, if it was exported for many sizes, be of one
// of these: run() makes the step at a new size without capturing anything. Throws InputError if a file is not what it
// should be, or calls operators that this libtorch does not have.
[[nodiscard]] TrainingStep load_step(const std::string& program, const std::string& parameters = "");

// The same for the holders that TORCH_MODULE makes.
template <typename Holder>
requires requires(const Holder& holder) { std::shared_ptr<torch::nn::Module>(holder.ptr()); }
[[nodiscard]] TrainingStep capture(const Holder& module, LossFunction loss, const std::vector<at::Tensor>& batch) {
  return capture(std::shared_ptr<torch::nn::Module>(module.ptr()), std::move(loss), batch);
}

}  // namespace reprise
