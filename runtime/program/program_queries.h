// Questions about a program that those who run it ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

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

}  // namespace reprise
