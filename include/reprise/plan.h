// What to run, in order: a closed set of actions over the ops and values of one graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reprise/ids.h"

namespace reprise {

// Compute an op (perhaps in place, perhaps not for the first time), free a value, begin to copy a value to the host's
// memory (store), or take memory for it and begin to copy it back (fetch). Code that reads actions uses a switch over
// kind() without a default, or asks one of the questions below, which are answered by such a switch: the compiler names
// every place that a new kind concerns.
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
  [[nodiscard]] constexpr bool computes() const { return facts().computes; }           // in place or not
  [[nodiscard]] constexpr bool in_place() const { return facts().in_place; }
  [[nodiscard]] constexpr bool frees() const { return facts().frees; }
  [[nodiscard]] constexpr bool stores() const { return facts().stores; }
  [[nodiscard]] constexpr bool fetches() const { return facts().fetches; }
  // Whether it begins to copy between the device and the host.
  [[nodiscard]] constexpr bool copies() const { return stores() || fetches(); }

  friend bool operator==(const Action&, const Action&) = default;

 private:
  struct Facts {
    bool computes = false;
    bool in_place = false;
    bool frees = false;
    bool stores = false;
    bool fetches = false;
  };
  [[nodiscard]] constexpr Facts facts() const {
    switch (kind_) {
      case Kind::kCompute:
        return {.computes = true};
      case Kind::kComputeInPlace:
        return {.computes = true, .in_place = true};
      case Kind::kFree:
        return {.frees = true};
      case Kind::kStore:
        return {.stores = true};
      case Kind::kFetch:
        return {.fetches = true};
    }
    return {};
  }

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
