#include "runtime/session/forms.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "reprise/simulate.h"
#include "runtime/costs/slice_check.h"

namespace reprise {
namespace {

constexpr std::array<std::int64_t, 5> kNumbersOfSlices{2, 4, 8, 16, 32};
constexpr std::int64_t kLeastPartBytes =
    1 << 17;                               // of the chain in one slice: with less, calls take longer than they save
constexpr double kDear = 0.03;             // recomputation, as a share of the step without it
constexpr std::size_t kCompared = 3;       // numbers of slices that are compared when one has a plan
constexpr std::int64_t kShareOfRoom = 16;  // a chain with less than this part of the room inside makes nothing cheaper

std::optional<SlicedProgram> slice_as_expected(const Program& program, std::int64_t slices) {
  const auto whole = prepare_for_slices(program);
  const auto chain = find_chain(*whole, Sums::kWhole);
  return chain && chain->units >= slices ? slice_program(whole, *chain, slices) : std::nullopt;
}

// No form has a plan after a short search: before this is said, the forms get the search that was asked for.
FoundPlan find_in_refused(const StepForms& forms, std::int64_t room, const std::vector<FormKey>& refused) {
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
  (void)forms.enter({});
  return smallest;
}

std::vector<Sums> kinds_of_chains(UseSlices use) {
  switch (use) {
    case UseSlices::kOff:
      return {};
    case UseSlices::kExact:
      return {Sums::kWhole};
    case UseSlices::kClose:
      return {Sums::kWhole, Sums::kInSlices};
  }
  return {};
}

}  // namespace

std::vector<FormKey> forms_in_slices(UseSlices use) {
  std::vector<FormKey> forms;
  for (const std::int64_t slices : kNumbersOfSlices) {
    for (const Sums sums : kinds_of_chains(use)) forms.push_back({slices, sums});
  }
  return forms;
}

std::optional<SlicedProgram> sliced_form(const Program& program, FormKey key, SliceBits bits) {
  auto sliced = key.sums == Sums::kInSlices    ? slice_closely(program, key.slices)
                : bits == SliceBits::kCompared ? slice_exactly(program, key.slices)
                                               : slice_as_expected(program, key.slices);
  if (!sliced || sliced->slices != key.slices) return std::nullopt;
  return sliced->chain.inside_bytes < key.slices * kLeastPartBytes ? std::nullopt : std::move(sliced);
}

std::int64_t sliceable_bytes(const Program& program, UseSlices use) {
  std::int64_t most = 0;
  if (use == UseSlices::kOff) return most;
  const auto whole = prepare_for_slices(program);
  for (const Sums sums : kinds_of_chains(use)) {
    const auto chain = find_chain(*whole, sums);
    if (chain && has_the_largest_call(*whole, *chain)) most = std::max(most, chain->inside_bytes);
  }
  return most;
}

bool is_dear(const Simulation& found) {
  const auto once = static_cast<double>(found.time_ns - found.recompute_ns - found.wait_ns);
  return static_cast<double>(found.recompute_ns + found.wait_ns) > kDear * once;
}

bool may_help(std::int64_t sliceable_bytes, std::int64_t room) {
  return sliceable_bytes * kShareOfRoom >= room && sliceable_bytes >= 2 * kLeastPartBytes;
}

FoundPlan find_in_forms(const StepForms& forms, std::int64_t room) {
  const std::int64_t of_whole = forms.largest_call_bytes();
  std::map<Sums, std::int64_t> lowest;  // what the largest call of a form takes at least
  std::vector<FormKey> refused;         // forms without a plan, of each kind that with the highest floor first
  const auto attempt = [&](std::int64_t floor) { return room < floor ? FoundPlan{} : forms.find_at_once(room); };
  FoundPlan best = attempt(of_whole);
  if (best.found() && !is_dear(best.simulation)) return forms.find(room);
  if (!best.found()) refused.push_back({});
  FormKey form;                     // of the best plan
  std::set<std::int64_t> compared;  // numbers of slices
  for (const FormKey& key : forms.in_slices) {
    if (compared.size() == kCompared && !compared.contains(key.slices)) break;
    if (!forms.enter(key)) continue;
    const std::int64_t floor = forms.largest_call_bytes();
    std::int64_t& lowest_of_kind = lowest.try_emplace(key.sums, of_whole).first->second;
    if (floor >= lowest_of_kind) continue;  // it is something else that takes the memory
    lowest_of_kind = floor;
    FoundPlan found = attempt(floor);
    if (!found.found()) {
      refused.push_back(key);
    } else if (!best.found() || found.simulation.time_ns < best.simulation.time_ns) {
      best = std::move(found);
      form = key;
    }
    if (best.found()) compared.insert(key.slices);
  }
  if (!best.found()) return find_in_refused(forms, room, refused);
  (void)forms.enter(form);
  return best;
}

}  // namespace reprise
