// A training step of any size with its loss inside, what its tensors are, and for which sizes it holds.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/program/family/program_family.h"
#include "runtime/program/family/size_limits.h"
#include "runtime/program/step_program.h"

namespace reprise {

struct StepFamily {
  // A size of a batch that varies.
  struct Symbol {
    std::int32_t batch = 0;      // which tensor
    std::int32_t dimension = 0;  // which of its sizes
    std::int64_t here = 0;       // in the batch that was traced

    friend bool operator==(const Symbol&, const Symbol&) = default;
  };

  std::shared_ptr<const ProgramFamily> program;
  std::vector<Symbol> symbols{};
  SizeLimits limits{};
  // As in StepProgram.
  std::vector<std::string> state_names{};
  std::vector<std::int32_t> inputs{};
  std::vector<std::int32_t> gradients{};

  [[nodiscard]] std::vector<std::int64_t> traced_at() const;
  // The step at these sizes. Throws InputError if there is none, or if it is not a legal program.
  [[nodiscard]] StepProgram at(std::span<const std::int64_t> sizes) const;
  // The sizes that a batch has. Throws InputError, with the sizes for which the step holds, if it is not for this
  // batch.
  [[nodiscard]] std::vector<std::int64_t> sizes_of(std::span<const at::Tensor> batch) const;
  // "batch[0].size(1)", by symbol.
  [[nodiscard]] std::vector<std::string> words() const;
};

}  // namespace reprise
