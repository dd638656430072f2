// Whether slices give the bits of the whole on this device.
//
// A library may choose another kernel where a matrix has fewer rows, and round differently. So before a step relies on
// slices, each call of the chain runs once whole and once slice by slice, as the sliced program would run it, on the
// same made-up numbers, and all bytes are compared. So is a loss that keeps rows with the loss as it was.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "runtime/program/slices/slice_program.h"

namespace reprise {

// The calls of the chain, by their ids in the whole program, whose slices differ from them in bits or in layout.
[[nodiscard]] std::set<OpId> differing_calls(const SlicedProgram& sliced);

// Whether the losses of a program give the same bits when they keep rows.
[[nodiscard]] bool losses_keep_their_bits(const Program& program);

// The program with its largest chain in so many slices, all of whose calls have the bits of the whole; nothing if there
// is no such chain.
[[nodiscard]] std::optional<SlicedProgram> slice_exactly(const Program& program, std::int64_t slices);
// The same without that condition, and with sums that are added up over the slices: the results are close.
[[nodiscard]] std::optional<SlicedProgram> slice_closely(const Program& program, std::int64_t slices);

}  // namespace reprise
