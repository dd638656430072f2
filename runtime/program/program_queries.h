// Questions about a program that those who run it ask.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "runtime/program/program.h"

namespace reprise {

// An op for people: "'mul_3' (aten::mul.Tensor) in layer1.0".
[[nodiscard]] std::string words_of(const ProgramOp& op);
// Costs that need no measuring: bytes of values, and the workspace of collectives and of ops that are not calls.
[[nodiscard]] Costs bare_costs(const Program& program);
// Bytes of what exists before and after the step.
[[nodiscard]] std::int64_t resident_bytes(const Program& program);
// The tensors that are its own: constants, and (in host memory) the numbers that stand for tensors in its calls.
[[nodiscard]] std::vector<at::Tensor> own_tensors(const Program& program);
// Bytes that are allocated while autograd receives the gradients.
[[nodiscard]] std::int64_t hand_over_bytes(const Program& program);
// Whether autograd takes the gradient of a variable as it is, by the contract of AccumulateGrad, and copies nothing.
[[nodiscard]] bool taken_without_copy(const Geometry& gradient, const Geometry& variable);
// The value for what the caller keeps between forward and backward; kNoValue if the program has none.
[[nodiscard]] ValueId caller_value(const Program& program);
// Positions of the inputs that use one of these values.
[[nodiscard]] std::vector<std::size_t> inputs_with(const Program& program, const std::set<ValueId>& wanted);

// Memory on the device for the gradients of the outputs; undefined where the program does not read the gradient.
[[nodiscard]] std::vector<at::Tensor> empty_seeds(const Program& program);
// The seeds of a step with its loss inside: the gradient of the loss is one, the others are zero.
[[nodiscard]] std::vector<at::Tensor> loss_seeds(const Program& program);
// Replaces undefined seeds that the program needs with zeros.
void fill_seeds(const Program& program, const std::set<std::size_t>& optional, std::vector<at::Tensor>& seeds);

}  // namespace reprise
