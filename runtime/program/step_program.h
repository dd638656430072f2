// A training step with its loss inside, and what its tensors are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

struct StepProgram {
  // Its forward outputs: the loss, perhaps more. Its seeds: those the caller's op makes, the first that of the loss
  // (one); perhaps none.
  std::shared_ptr<Program> program;
  // Parameters and buffers, by the user's names.
  std::vector<std::string> state_names;
  // Per tensor of program->inputs: its position in the batch, or -(1 + position in state_names).
  std::vector<std::int32_t> inputs;
  // Per tensor of program->gradients: whose it is, by position in state_names; -1: of nothing named.
  std::vector<std::int32_t> gradients;
};

}  // namespace reprise
