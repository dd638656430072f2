// Finds a plan for a training step, and runs a step once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reprise/solve.h"
#include "reprise/torch/training_step.h"
#include "torch/executor.h"

namespace reprise {

// Without room: the plan that runs nothing again.
[[nodiscard]] Solution find_plan(const Graph& graph, const StepOptions& options, std::optional<std::int64_t> room);
[[nodiscard]] bool fits(const Solution& solution, std::optional<std::int64_t> room);

struct StepResult {
  std::vector<std::optional<at::Tensor>> outputs;  // the loss comes first
  std::vector<std::optional<at::Tensor>> gradients;
};

// Forward and backward, from arguments_of() the step.
[[nodiscard]] StepResult run_step(const Executor& executor, std::span<const at::Tensor> arguments);

}  // namespace reprise
