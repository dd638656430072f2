// Short names for actions on ops and values with a number, for plans that are written out in tests.
#pragma once

#include <cstddef>

#include "reprise/plan.h"

namespace reprise::test {

constexpr Action c(std::size_t op) { return Action::compute(op_id(op)); }
constexpr Action c_in_place(std::size_t op) { return Action::compute(op_id(op), true); }
constexpr Action f(std::size_t value) { return Action::free(value_id(value)); }
constexpr Action s(std::size_t value) { return Action::store(value_id(value)); }
constexpr Action b(std::size_t value) { return Action::fetch(value_id(value)); }

}  // namespace reprise::test
