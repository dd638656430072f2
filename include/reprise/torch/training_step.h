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
// The step is captured below autograd: what runs is the operators that the code called, some of them again. Loss,
// gradients, buffers and the position of the random generators are bit for bit those of plain training.
//
// capture() runs the step as it is, so one plain step has to fit the device. It then checks what it captured: with
// other numbers in inputs and parameters, captured and plain step have to agree. Everything is as before afterwards.
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

// Whether steps run as CUDA graphs: recorded once, then replayed, which costs the CPU next to nothing. kOn: the first
// two steps of a shape in a row run without, the third is recorded. kAuto: where issuing the operators takes about as
// long as running them. The batch, loss and gradients take their bytes twice.
enum class CudaGraphs : std::uint8_t { kOff, kOn, kAuto };

struct StepOptions {
  // Highest number of bytes allocated on the device while the step runs, parameters, gradients, inputs and whatever
  // else is there included. On the CPU, what is not of the module, the batch or the optimizer is counted from the first
  // step on. Nothing: no recomputation.
  std::optional<std::int64_t> budget_bytes{};
  std::int64_t reserve_bytes = 0;  // of the budget, to be left free for what will be allocated later
  // Its state is counted before it is there. Must outlive the steps that it is given for.
  const torch::optim::Optimizer* optimizer = nullptr;
  std::string planner = "auto";
  double planning_seconds = 10;
  CudaGraphs cuda_graphs = CudaGraphs::kOff;

  friend bool operator==(const StepOptions&, const StepOptions&) = default;
};

struct StepSummary {
  std::string planner;
  std::int64_t peak_bytes = 0;                   // predicted, of everything that the budget is for
  std::int64_t time_ns = 0;                      // of all operators, by what each was measured to take
  std::int64_t recompute_ns = 0;                 // of these, what runs again
  std::optional<std::int64_t> lower_bound_ns{};  // no plan in this order is faster within the budget
  bool as_cuda_graph = false;                    // the latest run was one
};

// Whether a budget can be kept, as an answer.
struct StepAnswer {
  Status status = Status::kInfeasible;
  StepSummary summary{};                   // where it can
  std::int64_t smallest_budget_bytes = 0;  // where it cannot: this one can
};

class TrainingStep {
 public:
  ~TrainingStep();
  TrainingStep(TrainingStep&&) noexcept;
  TrainingStep& operator=(TrainingStep&&) noexcept;

  // For this and all later shapes. Throws InfeasibleBudget, with the smallest budget found, where this one cannot be
  // kept, and InputError where there are no CUDA graphs to be had; run() does where the step cannot be recorded.
  StepSummary plan(const StepOptions& options);
  // The same, but a budget that cannot be kept is an answer, and leaves the options as they were.
  [[nodiscard]] StepAnswer try_plan(const StepOptions& options);

  // Forward and backward: adds to the gradients of the parameters, or makes them; returns the loss. A batch of another
  // shape, a change of train() and eval() or of requires_grad is captured and planned anew.
  at::Tensor run(const std::vector<at::Tensor>& batch);

  // What gets gradients, for an optimizer; and all that the step reads or changes beside the batch.
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state() const;
  // Parameters and buffers by name, as a file that Python's torch.load(path, weights_only=True) reads as a dict.
  void save(const std::string& path) const;

  // Of the latest run.
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

// Throws InputError where the step cannot be captured, with the operator and what to do, and where the captured step
// does not do what the code does.
[[nodiscard]] TrainingStep capture(std::shared_ptr<torch::nn::Module> module, LossFunction loss,
                                   const std::vector<at::Tensor>& batch);

// A step that reprise.export has written in Python: net.program.json, and net.parameters.pt beside it or another file
// of the same tensors, such as one that save() wrote. Its batches have the shapes it was exported with. Throws
// InputError where a file is not what it should be, or calls what this libtorch does not have.
[[nodiscard]] TrainingStep load_step(const std::string& program, const std::string& parameters = "");

// For the holders that TORCH_MODULE makes.
template <typename Holder>
requires requires(const Holder& holder) { std::shared_ptr<torch::nn::Module>(holder.ptr()); }
[[nodiscard]] TrainingStep capture(const Holder& module, LossFunction loss, const std::vector<at::Tensor>& batch) {
  return capture(std::shared_ptr<torch::nn::Module>(module.ptr()), std::move(loss), batch);
}

}  // namespace reprise
