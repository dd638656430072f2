// In which form a step runs: whole, or with a chain of its calls in slices.
//
// The whole step comes first. Only where the room is too small for it, or costs much recomputation, is a chain of its
// calls cut, into more and more slices. What decides is the time of the plan that each form has for the same room.
// Sessions decide so when a step is called, and forecasts before there is one.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "runtime/program/slices/slice_program.h"
#include "runtime/session/options.h"
#include "runtime/session/plan_book.h"

namespace reprise {

inline constexpr std::array<std::int64_t, 5> kNumbersOfSlices{2, 4, 8, 16, 32};

// Whether slices are compared with the whole on the device, or expected to have its bits because nothing may run there.
enum class SliceBits : std::uint8_t { kCompared, kExpected };

// The step in so many slices; nothing if no chain can be cut so, or if little of it would be left in each slice.
[[nodiscard]] std::optional<SlicedProgram> sliced_form(const Program& program, UseSlices use, std::int64_t slices,
                                                       SliceBits bits);
// Bytes inside of the chain that would be cut; 0 if there is none.
[[nodiscard]] std::int64_t sliceable_bytes(const Program& program, UseSlices use);
// Whether a plan of the whole step computes so much again that other forms are tried.
[[nodiscard]] bool is_dear(const Simulation& found);
// Whether cutting a chain with so many bytes inside may help in this room at all.
[[nodiscard]] bool may_help(std::int64_t sliceable_bytes, std::int64_t room);

// The forms of one step, of which it is in one at a time.
struct StepForms {
  std::function<bool(std::int64_t slices)> enter;    // returns whether there is that form; 1 is always there
  std::function<std::int64_t()> largest_call_bytes;  // of this form
  std::function<FoundPlan(std::int64_t room)> find_at_once;
  std::function<FoundPlan(std::int64_t room)> find;
};

// Each form gets a short search, and the step ends in the form of the plan. If none has a plan, they get the longer
// search before that is said. REQUIRES: the step is whole.
[[nodiscard]] FoundPlan find_in_forms(const StepForms& forms, std::int64_t room);

}  // namespace reprise
