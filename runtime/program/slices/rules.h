// Which calls can be cut into slices: for each operator, which of its tensors are cut and which every slice reads
// whole.
//
// A rule says that each unit of the results depends on the same unit of the tensors that are cut, and on nothing else
// of them. It says nothing about bits: a library may add in another order where a matrix has fewer rows. That is
// compared on the device before anyone relies on it (costs/slice_check.h). Operators without a rule are never cut, and
// neither are random calls, calls that write over their operands and calls that must run once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

enum class Part : std::uint8_t { kWhole, kCut, kCutColumns };  // the last is a matrix that is cut as its transpose

// By argument, for a call whose results are all cut into so many units; nothing if the call cannot be cut.
[[nodiscard]] std::optional<std::vector<Part>> slice_rule(const ProgramOp& op, std::int64_t units);

// The same for a call whose one result is a sum over units: the first slice makes it, and the others add to it. It
// rounds differently from the whole call. There is one such operator, the product of two matrices over the dimension
// that is cut, in types that are wide enough to add up in.
[[nodiscard]] std::optional<std::vector<Part>> sum_rule(const ProgramOp& op, std::int64_t units);

}  // namespace reprise
