// reprise::launch, the operator that runs a generated kernel. To a program, an engine and the cost book a generated
// kernel is a call like any other:
//
//   launch(str file, str function, Device device, int[] grid, int[] arguments, Tensor[] reads, Tensor(a!)[] changes,
//          int[] made, int workspace_bytes, bool atomic, int[] samples, int[] over=[], bool in_place=False) -> Tensor[]
//
// It allocates what the kernel makes, and memory that the kernel needs meanwhile, and runs the kernel. `arguments` says
// for each parameter of the kernel where it comes from, `made` describes the results; both are lists of numbers, which
// are written and read here alone. `over` has pairs of numbers, a result and one of `reads` over which it may lie,
// because the kernel reads each element of that for the last time where it writes the result's. A call that is
// `in_place` puts these results there, and allocates the others (program/passes/in_place.h).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/program/passes/in_place.h"
#include "runtime/program/program.h"

namespace reprise {

struct LaunchArgument {
  enum class Kind : std::uint8_t { kRead, kChanged, kMade, kNumber, kWorkspace, kNull };
  Kind kind = Kind::kNull;
  std::int64_t number = 0;  // which of the tensors; or the bits of the number itself
};

struct MadeMemory {
  Geometry geometry;
  std::int64_t bytes = 0;
};

[[nodiscard]] std::vector<std::int64_t> to_numbers(std::span<const LaunchArgument> arguments);
[[nodiscard]] std::vector<std::int64_t> to_numbers(std::span<const MadeMemory> made);

// Whether a call of the operator runs a kernel that adds with atomics, in any order.
[[nodiscard]] bool uses_atomics(const Call& launch);

// What integers in the memory that a call reads have to be when its kernel runs alone on made-up operands, where 0 will
// not do: a kernel may compute addresses from them and check nothing. Empty for all other operators.
[[nodiscard]] std::map<ValueId, std::int64_t> samples_of(const Call& call);

}  // namespace reprise
