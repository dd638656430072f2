// Vectors that are indexed by an id, so that an op cannot be used as an index where values are meant.
#pragma once

#include <vector>

#include "reprise/ids.h"

namespace reprise {

constexpr OpId& operator++(OpId& id) { return id = op_id(index(id) + 1); }
constexpr ValueId& operator++(ValueId& id) { return id = value_id(index(id) + 1); }

namespace detail {

template <typename Id, typename T>
class ById : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  [[nodiscard]] T& operator[](Id id) { return std::vector<T>::operator[](index(id)); }
  [[nodiscard]] const T& operator[](Id id) const { return std::vector<T>::operator[](index(id)); }
};

template <typename T>
using ByOp = ById<OpId, T>;
template <typename T>
using ByValue = ById<ValueId, T>;

}  // namespace detail
}  // namespace reprise
