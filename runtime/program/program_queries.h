// Questions about a program that those who run it ask.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "reprise/costs.h"
#include "runtime/program/program.h"

namespace reprise {

// Costs that need no measuring: bytes of values, and the workspace of what is no call.
[[nodiscard]] Costs bare_costs(const Program& program);
// Of what is there before the step and after it.
[[nodiscard]] std::int64_t resident_bytes(const Program& program);
// Of the numbers that stand for tensors in its calls, in host memory.
[[nodiscard]] std::int64_t number_bytes(const Program& program);
// Taken while autograd receives the gradients.
[[nodiscard]] std::int64_t hand_over_bytes(const Program& program);
// What the caller keeps from between forward and backward; kNoValue where the program has no such value.
[[nodiscard]] ValueId caller_value(const Program& program);
// Positions of the inputs that are one of these values.
[[nodiscard]] std::vector<std::size_t> inputs_with(const Program& program, const std::set<ValueId>& wanted);

// Memory for the gradients of the outputs, on the device; undefined where the program reads none.
[[nodiscard]] std::vector<at::Tensor> empty_seeds(const Program& program);
// Of a step with its loss inside: the gradient of the loss is one, others are zero.
[[nodiscard]] std::vector<at::Tensor> loss_seeds(const Program& program);
// Makes zeros of undefined seeds that the program cannot do without.
void fill_seeds(const Program& program, const std::set<std::size_t>& optional, std::vector<at::Tensor>& seeds);

}  // namespace reprise
