#include "runtime/session/forms.h"

#include <utility>
#include <vector>

#include "reprise/simulate.h"
#include "runtime/costs/slice_check.h"

namespace reprise {
namespace {

constexpr std::int64_t kLeastPartBytes =
    1 << 17;                               // of the chain in one slice: with less, calls take longer than they save
constexpr double kDear = 0.03;             // recomputation, as a share of the step without it
constexpr std::size_t kCompared = 3;       // forms that are compared when one has a plan
constexpr std::int64_t kShareOfRoom = 16;  // a chain with less than this part of the room inside makes nothing cheaper

std::optional<SlicedProgram> slice_as_expected(const Program& program, std::int64_t slices) {
  const auto whole = prepare_for_slices(program);
  const auto chain = find_chain(*whole, Sums::kWhole);
  return chain && chain->units >= slices ? slice_program(whole, *chain, slices) : std::nullopt;
}

// No form has a plan after a short search: before this is said, the forms get the search that was asked for.
FoundPlan find_in_refused(const StepForms& forms, std::int64_t room, const std::vector<std::int64_t>& refused) {
  FoundPlan smallest;
  for (auto form = refused.rbegin(); form != refused.rend(); ++form) {
    (void)forms.enter(*form);
    if (smallest.smallest_budget_bytes > 0 && forms.largest_call_bytes() >= smallest.smallest_budget_bytes) continue;
    FoundPlan found = forms.find(room);
    if (found.found()) return found;
    if (smallest.smallest_budget_bytes == 0 || found.smallest_budget_bytes < smallest.smallest_budget_bytes) {
      smallest = std::move(found);
    }
  }
  (void)forms.enter(1);
  return smallest;
}

}  // namespace

std::optional<SlicedProgram> sliced_form(const Program& program, UseSlices use, std::int64_t slices, SliceBits bits) {
  if (use == UseSlices::kOff) return std::nullopt;
  auto sliced = use == UseSlices::kClose       ? slice_closely(program, slices)
                : bits == SliceBits::kCompared ? slice_exactly(program, slices)
                                               : slice_as_expected(program, slices);
  if (!sliced || sliced->slices != slices || sliced->chain.inside_bytes < slices * kLeastPartBytes) return std::nullopt;
  return sliced;
}

std::int64_t sliceable_bytes(const Program& program, UseSlices use) {
  if (use == UseSlices::kOff) return 0;
  const Sums sums = use == UseSlices::kClose ? Sums::kInSlices : Sums::kWhole;
  const auto whole = prepare_for_slices(program);
  const auto chain = find_chain(*whole, sums);
  return chain && has_the_largest_call(*whole, *chain) ? chain->inside_bytes : 0;
}

bool is_dear(const Simulation& found) {
  const auto once = static_cast<double>(found.time_ns - found.recompute_ns - found.wait_ns);
  return static_cast<double>(found.recompute_ns + found.wait_ns) > kDear * once;
}

bool may_help(std::int64_t sliceable_bytes, std::int64_t room) {
  return sliceable_bytes * kShareOfRoom >= room && sliceable_bytes >= 2 * kLeastPartBytes;
}

FoundPlan find_in_forms(const StepForms& forms, std::int64_t room) {
  std::int64_t lowest = forms.largest_call_bytes();
  std::vector<std::int64_t> refused;  // forms without a plan, that with the highest floor first
  const auto attempt = [&] { return room < lowest ? FoundPlan{} : forms.find_at_once(room); };
  FoundPlan best = attempt();
  if (best.found() && !is_dear(best.simulation)) return forms.find(room);
  if (!best.found()) refused.push_back(1);
  std::int64_t form = 1;  // of the best plan
  std::size_t compared = 0;
  for (const std::int64_t slices : kNumbersOfSlices) {
    if (!forms.enter(slices)) continue;
    const std::int64_t floor = forms.largest_call_bytes();
    if (floor >= lowest) continue;  // it is something else that takes the memory
    lowest = floor;
    FoundPlan found = attempt();
    if (!found.found()) {
      refused.push_back(slices);
    } else if (!best.found() || found.simulation.time_ns < best.simulation.time_ns) {
      best = std::move(found);
      form = slices;
    }
    if (best.found() && ++compared == kCompared) break;
  }
  if (!best.found()) return find_in_refused(forms, room, refused);
  (void)forms.enter(form);
  return best;
}

}  // namespace reprise
