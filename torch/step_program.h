// A training step with its loss inside, and what its tensors are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "torch/program.h"

namespace reprise {

struct StepProgram {
  // Its forward outputs: the loss, perhaps more. Its seeds: those the caller's op makes, the first that of the loss
  // (one); perhaps none.
  std::shared_ptr<Program> program;
  std::vector<std::string> state_names;  // parameters and buffers, by the user's names
  std::vector<std::int32_t>
      inputs;  // per tensor of program->inputs: position in the batch, or -(1 + that in state_names)
  std::vector<std::int32_t>
      gradients;  // per tensor of program->gradients: position in state_names; -1: of nothing named
};

}  // namespace reprise
