// A training step with its loss inside, and what its tensors are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

struct StepProgram {
  // Its forward outputs are the loss and perhaps more. Its seeds are those that the caller's op makes, first that of
  // the loss (one); there may be none.
  std::shared_ptr<Program> program;
  // Parameters and buffers, by the user's names.
  std::vector<std::string> state_names;
  // For each tensor of program->inputs, its position in the batch, or -(1 + position in state_names).
  std::vector<std::int32_t> inputs;
  // For each tensor of program->gradients, the position in state_names of the tensor it belongs to; -1 if that has no
  // name.
  std::vector<std::int32_t> gradients;
};

}  // namespace reprise
