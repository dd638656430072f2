#include "runtime/session/forms.h"

#include <algorithm>
#include <array>
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
    if (smallest.smallest_budget_bytes > 0 && forms.bytes().largest_call >= smallest.smallest_budget_bytes) continue;
    FoundPlan found = forms.find(room);
    if (found.found()) return found;
    if (smallest.smallest_budget_bytes == 0 || found.smallest_budget_bytes < smallest.smallest_budget_bytes) {
      smallest = std::move(found);
    }
  }
  (void)forms.enter({});
  return smallest;
}

// By value: whether an op without inputs made its memory, and only the op that goes on writing it reads it.
std::vector<std::uint8_t> half_written(const Graph& graph) {
  std::vector<std::uint8_t> is_filled(graph.num_values(), 0), is_half(graph.num_values(), 0);
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    for (const ValueId made : graph.outputs(op_id(i))) {
      const ValueId old = graph.overwrites(made);
      is_filled[index(made)] = old == kNoValue ? graph.inputs(op_id(i)).empty() : is_filled[index(old)];
      if (old != kNoValue) is_half[index(old)] = is_filled[index(old)] != 0 && graph.readers(old).size() == 1;
    }
  }
  return is_half;
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

FormBytes form_bytes(const Graph& graph, const Costs& costs) {
  const std::vector<std::uint8_t> is_half = half_written(graph);
  const auto half_bytes = [&](ValueId value) {
    return value != kNoValue && is_half[index(value)] != 0 ? costs.value_bytes[index(value)] : 0;
  };
  Costs raised = costs;  // each op with what is half written beside it as workspace
  std::int64_t beside = 0;
  for (std::size_t i = 0; i < graph.num_ops(); ++i) {
    for (const ValueId made : graph.outputs(op_id(i))) beside -= half_bytes(graph.overwrites(made));
    raised.workspace_bytes[i] += beside;
    for (const ValueId made : graph.outputs(op_id(i))) beside += half_bytes(made);
  }
  return {most_of_one_op(graph, costs), most_of_one_op(graph, raised)};
}

bool LeastForms::take_less(Sums kind, FormBytes form) {
  FormBytes& least = least_.try_emplace(kind, whole_).first->second;
  const FormBytes before = least;
  least = {std::min(least.largest_call, form.largest_call),
           std::min(least.beside_half_written, form.beside_half_written)};
  return least.largest_call < before.largest_call || least.beside_half_written < before.beside_half_written;
}

FoundPlan find_in_forms(const StepForms& forms, std::int64_t room) {
  const FormBytes of_whole = forms.bytes();
  LeastForms least(of_whole);
  std::vector<FormKey> refused;  // forms without a plan, of each kind that with the highest floor first
  const auto attempt = [&](std::int64_t floor) { return room < floor ? FoundPlan{} : forms.find_at_once(room); };
  FoundPlan best = attempt(of_whole.largest_call);
  if (best.found() && !is_dear(best.simulation)) return forms.find(room);
  if (!best.found()) refused.push_back({});
  FormKey form;                     // of the best plan
  std::set<std::int64_t> compared;  // numbers of slices
  for (const FormKey& key : forms.in_slices) {
    if (compared.size() == kCompared && !compared.contains(key.slices)) break;
    if (!forms.enter(key)) continue;
    const FormBytes bytes = forms.bytes();
    if (!least.take_less(key.sums, bytes)) continue;
    FoundPlan found = attempt(bytes.largest_call);
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
