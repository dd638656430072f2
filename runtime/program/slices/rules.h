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
#include <set>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

// How a slice reads an argument.
enum class SlicePart : std::uint8_t {
  kWhole,
  kCut,
  kCutColumns,  // a matrix that is cut as its transpose
  kShape,       // only its sizes matter, and the first of them is cut
};

// What slices make of a result: each its own units, or each a summand of all of it.
enum class Made : std::uint8_t { kUnits, kSum };

// Whether sums over units may be part of a chain, although they round differently.
enum class Sums : std::uint8_t { kWhole, kInSlices };

struct SliceRule {
  std::vector<SlicePart> arguments{};
  std::vector<Made> results{};  // means nothing for a result that the call does not make
};

// How to cut a call into so many units; nothing if it cannot be cut.
[[nodiscard]] std::optional<SliceRule> slice_rule(const ProgramOp& op, std::int64_t units, Sums sums);

// The operators that have rules of their own, beside the one for all that PyTorch says are pointwise: those for results
// that are units, or those for results that are sums.
[[nodiscard]] std::set<std::string> operators_with_rules(Made made);

}  // namespace reprise
