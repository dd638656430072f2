// Captures a training step of a module, and checks what it captured.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "reprise/torch/training_step.h"
#include "runtime/program/step_program.h"
#include "runtime/record/module_state.h"

namespace reprise {

// Leaves state, gradients and generators as they were. Throws InputError if the step cannot be captured.
[[nodiscard]] StepProgram capture_step(const std::string& name, const ModuleState& state, const LossFunction& loss,
                                       const std::vector<at::Tensor>& batch);

// Runs the step and the program on other numbers and throws InputError if they differ. Leaves everything as it was.
void check_step(const StepProgram& step, const ModuleState& state, const LossFunction& loss,
                const std::vector<at::Tensor>& batch);

// The tensors that the program's forward call gets.
[[nodiscard]] std::vector<at::Tensor> arguments_of(const StepProgram& step, const std::vector<at::Tensor>& state,
                                                   const std::vector<at::Tensor>& batch);

// Adds to the gradients that exist; if a parameter has none, it gets the new one.
void add_gradients(const StepProgram& step, const std::vector<std::optional<at::Tensor>>& gradients,
                   const std::vector<at::Tensor>& state);

}  // namespace reprise
