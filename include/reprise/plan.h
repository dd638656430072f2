// What to run, in order: a closed set of actions over the ops and values of one graph.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "reprise/ids.h"

namespace reprise {

// Compute an op (perhaps in place, perhaps not for the first time), or free a value.
class Step {
 public:
  enum class Kind : std::uint8_t { kCompute, kComputeInPlace, kFree };

  [[nodiscard]] static constexpr Step compute(OpId op, bool in_place = false) {
    return {in_place ? Kind::kComputeInPlace : Kind::kCompute, static_cast<std::uint32_t>(op)};
  }
  [[nodiscard]] static constexpr Step free(ValueId value) { return {Kind::kFree, static_cast<std::uint32_t>(value)}; }

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr bool is_free() const { return kind_ == Kind::kFree; }
  [[nodiscard]] constexpr bool in_place() const { return kind_ == Kind::kComputeInPlace; }
  [[nodiscard]] constexpr OpId op() const { return static_cast<OpId>(id_); }           // of a compute
  [[nodiscard]] constexpr ValueId value() const { return static_cast<ValueId>(id_); }  // of a free

  friend bool operator==(const Step&, const Step&) = default;

 private:
  constexpr Step(Kind kind, std::uint32_t id) : kind_(kind), id_(id) {}
  Kind kind_;
  std::uint32_t id_;
};

// Each compute begins a new life of its outputs. Where an output is still live, the run makes a second copy of it that
// is dropped at once.
struct Plan {
  std::vector<Step> steps{};

  friend bool operator==(const Plan&, const Plan&) = default;
};

}  // namespace reprise
