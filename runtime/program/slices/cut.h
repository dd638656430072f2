// Tensors cut into units along their outermost dimensions.
//
// A tensor of [4, 32, 1000] can be cut into 4 units, or into the 128 rows that its first two dimensions have together,
// as long as these lie one after the other in memory. A slice is a range of units. It keeps the number of dimensions:
// 40 of those 128 rows are [1, 40, 1000], so that arguments which name a dimension stay right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/program/program.h"

namespace reprise {

struct CutPlace {
  std::size_t dimension = 0;  // that is cut; those before it are merged with it
  std::int64_t per_unit = 1;  // numbers of that dimension in one unit

  friend bool operator==(const CutPlace&, const CutPlace&) = default;
};

// Where a tensor is cut into so many units; nothing if it cannot be.
[[nodiscard]] std::optional<CutPlace> cut_place(const Geometry& geometry, std::int64_t units);

// The units from `begin` to before `end` of a tensor, in the tensor's own memory.
[[nodiscard]] Geometry cut(const Geometry& geometry, CutPlace place, std::int64_t begin, std::int64_t end);

// How many elements of memory one unit is from the next.
[[nodiscard]] inline std::int64_t unit_stride(const Geometry& geometry, CutPlace place) {
  return place.per_unit * geometry.strides[place.dimension];
}

// A matrix seen as its transpose.
[[nodiscard]] Geometry transposed(Geometry matrix);

// Whether a tensor fills its memory from the beginning, the last dimension innermost.
[[nodiscard]] bool fills_its_memory(const Geometry& geometry);

// Whether a reader that sees a dense tensor of `made` through `seen` reads unit by unit what was written unit by unit.
[[nodiscard]] bool follows_units(const Geometry& made, const Geometry& seen, std::int64_t units);

}  // namespace reprise
