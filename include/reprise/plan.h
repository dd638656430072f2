// What to run, in order: a closed set of actions over the ops and values of one graph.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/ids.h"

namespace reprise {

// Compute an op (perhaps in place, perhaps not for the first time), or free a value. Code that reads actions uses a
// switch over kind() without a default, so that the compiler names every place that a new kind concerns.
class Action {
 public:
  enum class Kind : std::uint8_t { kCompute, kComputeInPlace, kFree };

  [[nodiscard]] static constexpr Action compute(OpId op, bool in_place = false) {
    return {in_place ? Kind::kComputeInPlace : Kind::kCompute, static_cast<std::uint32_t>(op)};
  }
  [[nodiscard]] static constexpr Action free(ValueId value) { return {Kind::kFree, static_cast<std::uint32_t>(value)}; }

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr OpId op() const { return static_cast<OpId>(id_); }           // for a compute
  [[nodiscard]] constexpr ValueId value() const { return static_cast<ValueId>(id_); }  // for a free
  // Whether it runs an op, in place or not.
  [[nodiscard]] constexpr bool computes() const {
    switch (kind_) {
      case Kind::kCompute:
      case Kind::kComputeInPlace:
        return true;
      case Kind::kFree:
        return false;
    }
    return false;
  }

  friend bool operator==(const Action&, const Action&) = default;

 private:
  constexpr Action(Kind kind, std::uint32_t id) : kind_(kind), id_(id) {}
  Kind kind_;
  std::uint32_t id_;
};

// Each compute begins a new life of its outputs. If an output is still live, the run makes a second copy of it, which
// is dropped at once.
struct Plan {
  std::vector<Action> actions{};

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace reprise
