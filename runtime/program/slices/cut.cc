#include "runtime/program/slices/cut.h"

#include <ATen/TensorGeometry.h>
#include <c10/util/accumulate.h>

#include <utility>

namespace reprise {
namespace {

// Whether the dimensions up to `last` can be seen as one.
bool are_merged(const Geometry& geometry, std::size_t last) {
  for (std::size_t i = 0; i < last; ++i) {
    if (geometry.sizes[i] != 1 && geometry.strides[i] != geometry.sizes[i + 1] * geometry.strides[i + 1]) return false;
  }
  return true;
}

}  // namespace

std::optional<CutPlace> cut_place(const Geometry& geometry, std::int64_t units) {
  if (units < 1 || geometry.conj || geometry.neg) return std::nullopt;
  std::int64_t product = 1;
  for (std::size_t i = 0; i < geometry.sizes.size(); ++i) {
    product *= geometry.sizes[i];
    if (product == 0) return std::nullopt;
    if (product % units != 0) continue;
    return are_merged(geometry, i) ? std::optional(CutPlace{i, product / units}) : std::nullopt;
  }
  return std::nullopt;
}

Geometry cut(const Geometry& geometry, CutPlace place, std::int64_t begin, std::int64_t end) {
  Geometry part = geometry;
  const std::size_t at = place.dimension;
  part.sizes[at] = (end - begin) * place.per_unit;
  part.offset += begin * unit_stride(geometry, place);
  for (std::size_t i = at; i > 0; --i) {
    part.sizes[i - 1] = 1;
    part.strides[i - 1] = part.sizes[i] * part.strides[i];
  }
  return part;
}

Geometry transposed(Geometry matrix) {
  std::swap(matrix.sizes.at(0), matrix.sizes.at(1));
  std::swap(matrix.strides.at(0), matrix.strides.at(1));
  return matrix;
}

bool fills_its_memory(const Geometry& geometry) {
  return geometry.offset == 0 && !geometry.conj && !geometry.neg &&
         at::geometry_is_contiguous(geometry.sizes, geometry.strides);
}

bool follows_units(const Geometry& made, const Geometry& seen, std::int64_t units) {
  const auto place = cut_place(seen, units);
  if (!place || !fills_its_memory(made) || made.dtype != seen.dtype) return false;
  const std::int64_t unit = c10::multiply_integers(made.sizes) / units;
  if (unit_stride(seen, *place) != unit) return false;
  const auto element = static_cast<std::int64_t>(c10::elementSize(seen.dtype));
  return extent_bytes(cut(seen, *place, 0, 1)) <= unit * element;
}

}  // namespace reprise
