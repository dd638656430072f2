// What a front end tells a ProgramBuilder of a step, as plain data. In a step of any size, names of expressions stand
// in the place of the numbers that follow from sizes (size_table.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/program/family/size_table.h"
#include "runtime/program/program_builder.h"

namespace reprise {

struct ToldStep {
  enum class Origin : std::uint8_t { kResident, kMade, kSeed };
  struct Memory {
    Origin origin = Origin::kResident;
    std::int64_t bytes = 0;
    at::Device device = at::kCPU;
  };

  std::string name;
  at::Device device = at::kCPU;
  std::size_t num_symbols = 0;
  SizeTable sizes{};
  std::vector<Memory> memory{};  // by name: the values of uses are such names
  Uses inputs{};
  std::vector<std::pair<ValueId, at::Tensor>> constants{};
  std::vector<ProgramBuilder::SeenCall> forward{};
  Uses outputs{};
  Uses seeds{};
  std::vector<ProgramBuilder::SeenCall> backward{};
  std::vector<std::optional<ProgramBuilder::Gradient>> gradients{};
  std::optional<bool> split{};  // whether the backward pass of large convolutions is
};

}  // namespace reprise
