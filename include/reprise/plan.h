// What to run, in order: a closed set of actions over the ops and values of one graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reprise/ids.h"

namespace reprise {

// Compute an op (perhaps in place, perhaps not for the first time), free a value, begin to copy a value to the host's
// memory (store), or take memory for it and begin to copy it back (fetch). Code that reads actions uses a switch over
// kind() without a default, so that the compiler names every place that a new kind concerns.
class Action {
 public:
  enum class Kind : std::uint8_t { kCompute, kComputeInPlace, kFree, kStore, kFetch };

  [[nodiscard]] static constexpr Action compute(OpId op, bool in_place = false) {
    return {in_place ? Kind::kComputeInPlace : Kind::kCompute, static_cast<std::uint32_t>(op)};
  }
  [[nodiscard]] static constexpr Action free(ValueId value) { return {Kind::kFree, static_cast<std::uint32_t>(value)}; }
  [[nodiscard]] static constexpr Action store(ValueId value) {
    return {Kind::kStore, static_cast<std::uint32_t>(value)};
  }
  [[nodiscard]] static constexpr Action fetch(ValueId value) {
    return {Kind::kFetch, static_cast<std::uint32_t>(value)};
  }

  [[nodiscard]] constexpr Kind kind() const { return kind_; }
  [[nodiscard]] constexpr OpId op() const { return static_cast<OpId>(id_); }           // for a compute
  [[nodiscard]] constexpr ValueId value() const { return static_cast<ValueId>(id_); }  // for every other kind
  // Whether it runs an op, in place or not.
  [[nodiscard]] constexpr bool computes() const {
    switch (kind_) {
      case Kind::kCompute:
      case Kind::kComputeInPlace:
        return true;
      case Kind::kFree:
      case Kind::kStore:
      case Kind::kFetch:
        return false;
    }
    return false;
  }
  // Whether it begins to copy between the device and the host.
  [[nodiscard]] constexpr bool copies() const { return kind_ == Kind::kStore || kind_ == Kind::kFetch; }

  friend bool operator==(const Action&, const Action&) = default;

 private:
  constexpr Action(Kind kind, std::uint32_t id) : kind_(kind), id_(id) {}
  Kind kind_;
  std::uint32_t id_;
};

// Each compute begins a new life of its outputs. If an output is still live, the run makes a second copy of it, which
// is dropped at once. Memory is a function of this list alone, however slow a link to the host is: a store leaves it as
// it is, a free gives it back and a fetch takes it. What has to wait for a copy waits without an action: a free, or an
// in-place run, for the copy to the host of what it lets go, and the first run that reads a fetched value for its
// arrival.
struct Plan {
  std::vector<Action> actions{};

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Whether any of its actions copies to the host or back.
[[nodiscard]] inline bool copies(const Plan& plan) { return std::ranges::any_of(plan.actions, &Action::copies); }

}  // namespace reprise
