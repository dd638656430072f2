// In which form a step runs: whole, or with a chain of its calls in slices.
//
// The whole step comes first. Only where the room is too small for it, or costs much recomputation, is a chain of its
// calls cut, into more and more slices. What decides is the time of the plan that each form has for the same room.
// Sessions decide so when a step is called, and forecasts before there is one.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "runtime/program/slices/slice_program.h"
#include "runtime/session/options.h"
#include "runtime/session/plan_book.h"

namespace reprise {

// Into how many slices the chain is cut, and whether sums over them may be part of it. One slice: the step is whole.
struct FormKey {
  std::int64_t slices = 1;
  Sums sums = Sums::kWhole;

  [[nodiscard]] bool is_sliced() const { return slices > 1; }
  friend auto operator<=>(const FormKey&, const FormKey&) = default;
};

// In the order in which they are tried. Close slices may also be those of exact ones: sums in slices have memory of
// their own, in a wider type, so that a chain without them takes less where there are few rows.
[[nodiscard]] std::vector<FormKey> forms_in_slices(UseSlices use);

// Whether slices are compared with the whole on the device, or expected to have its bits because nothing may run there.
enum class SliceBits : std::uint8_t { kCompared, kExpected };

// The step in this form; nothing if no chain can be cut so, or if little of it would be left in each slice.
[[nodiscard]] std::optional<SlicedProgram> sliced_form(const Program& program, FormKey key, SliceBits bits);
// Bytes inside of the largest chain that would be cut; 0 if there is none.
[[nodiscard]] std::int64_t sliceable_bytes(const Program& program, UseSlices use);
// Whether a plan of the whole step computes so much again that other forms are tried.
[[nodiscard]] bool is_dear(const Simulation& found);
// Whether cutting a chain with so many bytes inside may help in this room at all.
[[nodiscard]] bool may_help(std::int64_t sliceable_bytes, std::int64_t room);

// What a form takes, before it is planned.
struct FormBytes {
  std::int64_t largest_call = 0;         // no plan takes less
  std::int64_t beside_half_written = 0;  // with the ends that are half written while a call runs, in the graph's order
};
[[nodiscard]] FormBytes form_bytes(const Graph& graph, const Costs& costs);

// The least that the forms so far take, those of each kind by themselves.
class LeastForms {
 public:
  explicit LeastForms(FormBytes whole) : whole_(whole) {}
  // Whether a further form takes less; if not, it is something else that takes the memory.
  [[nodiscard]] bool take_less(Sums kind, FormBytes form);

 private:
  FormBytes whole_;
  std::map<Sums, FormBytes> least_;
};

// The forms of one step, of which it is in one at a time.
struct StepForms {
  std::vector<FormKey> in_slices;
  std::function<bool(FormKey key)> enter;  // returns whether there is that form; the whole step always is
  std::function<FormBytes()> bytes;        // of this form
  std::function<FoundPlan(std::int64_t room)> find_at_once;
  std::function<FoundPlan(std::int64_t room)> find;
};

// Each form gets a short search, and the step ends in the form of the plan. If none has a plan, they get the longer
// search before that is said. REQUIRES: the step is whole.
[[nodiscard]] FoundPlan find_in_forms(const StepForms& forms, std::int64_t room);

}  // namespace reprise
