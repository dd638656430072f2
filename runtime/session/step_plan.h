// Finds a plan for a training step, and runs a step once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "reprise/solve.h"
#include "reprise/torch/training_step.h"
#include "runtime/engine/executor.h"

namespace reprise {

// Finds plans for a graph, and remembers them: more room never gives a slower plan, and what was once named as the
// smallest room has one, however little time there is.
class PlanFinder {
 public:
  explicit PlanFinder(Graph graph) : graph_(std::move(graph)) {}

  // The fastest plan within the room. Without room: the plan that runs nothing again.
  [[nodiscard]] Solution find(const StepOptions& options, std::optional<std::int64_t> room);

 private:
  void remember(const Solution& found);

  Graph graph_;
  std::vector<Solution> known_;  // each with a plan
};

[[nodiscard]] bool fits(const Solution& solution, std::optional<std::int64_t> room);

struct StepResult {
  std::vector<std::optional<at::Tensor>> outputs;  // the loss comes first
  std::vector<std::optional<at::Tensor>> gradients;
};

// Forward and backward, from arguments_of() the step.
[[nodiscard]] StepResult run_step(const Executor& executor, std::span<const at::Tensor> arguments);

}  // namespace reprise
