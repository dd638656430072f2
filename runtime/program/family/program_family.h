// One step for inputs of any size: what a front end told of it, with names of expressions in the place of the numbers
// that follow from sizes (size_table.h). A member is the program at one size.
//
//   ProgramFamily family("net", device, /*num_symbols=*/2);
//   const std::int64_t rows = family.sizes().add({...}, 2);
//   ... what a ProgramBuilder is told, for example family.made(rows, device) ...
//   Program program = family.at({8, 128});
//
// A member is built by a ProgramBuilder from the numbers at its size, as if the step had been captured there: versions,
// effects and passes follow from these numbers alone. One call depends on its numbers: the gradient of a slice that
// takes everything is the gradient itself, and no call, because a capture at that size does not see the slice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/program/family/told_step.h"

namespace reprise {

class ProgramFamily {
 public:
  using Gradients = std::vector<std::optional<ProgramBuilder::Gradient>>;

  ProgramFamily(std::string name, at::Device device, std::size_t num_symbols);
  // What was told elsewhere (told_check.h).
  explicit ProgramFamily(ToldStep told) : told_(std::move(told)) {}

  // Names an expression over the symbols.
  [[nodiscard]] std::int64_t size(SizeTable::Expression expression) {
    return told_.sizes.add(std::move(expression), told_.num_symbols);
  }

  // As in ProgramBuilder; memory has names of its own here.
  [[nodiscard]] ValueId resident(std::int64_t bytes, at::Device device);
  [[nodiscard]] ValueId made(std::int64_t bytes, at::Device device);
  [[nodiscard]] ValueId seed(std::int64_t bytes, at::Device device);
  void constant(ValueId memory, const at::Tensor& tensor);
  void input(std::optional<TensorUse> use);
  void call(ProgramBuilder::SeenCall seen);
  void end_forward(Uses outputs, Uses seeds);
  void finish(Gradients gradients, std::optional<bool> split);

  [[nodiscard]] at::Device device() const { return told_.device; }
  [[nodiscard]] const ToldStep& told() const { return told_; }
  // The program at these sizes. Throws InputError if there is none.
  [[nodiscard]] Program at(std::span<const std::int64_t> symbols) const;

 private:
  class Member;

  [[nodiscard]] ValueId name(ToldStep::Memory memory);

  ToldStep told_;
  bool is_backward_ = false;  // what is told now
};

}  // namespace reprise
