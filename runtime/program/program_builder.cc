#include "runtime/program/program_builder.h"

#include <ATen/ExpandUtils.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <set>

#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/program/passes/in_place.h"
#include "runtime/program/passes/split_collectives.h"
#include "runtime/program/passes/split_convolutions.h"
#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

// An op that is not a call; it runs once.
ProgramOp no_call(ProgramOp::Kind kind, std::string name, Phase phase, std::string scope = "") {
  ProgramOp op;
  op.kind = kind;
  op.name = std::move(name);
  op.scope = std::move(scope);
  op.phase = phase;
  op.once = true;
  return op;
}

std::int64_t dense_bytes(const Geometry& geometry) {
  return c10::multiply_integers(geometry.sizes) * static_cast<std::int64_t>(c10::elementSize(geometry.dtype));
}

}  // namespace

ProgramBuilder::ProgramBuilder(std::string name, at::Device device) {
  program_.name = std::move(name);
  program_.device = device;
}

ValueId ProgramBuilder::add_value(std::int64_t bytes, bool elsewhere) {
  program_.values.push_back({.bytes = elsewhere ? 0 : bytes});
  const ValueId value = value_id(program_.values.size() - 1);
  memory_.push_back(value);
  latest_.push_back(value);
  elsewhere_.push_back(elsewhere ? 1 : 0);
  return value;
}

ValueId ProgramBuilder::made(std::int64_t bytes, at::Device device) {
  const at::Device ours = program_.device;
  const bool same_number = !device.has_index() || !ours.has_index() || device.index() == ours.index();
  return add_value(granted_bytes(ours, bytes), device.type() != ours.type() || !same_number);
}

ValueId ProgramBuilder::resident(std::int64_t bytes, at::Device device) {
  const ValueId memory = made(bytes, device);
  program_.values.back().residence = Residence::kResident;
  return memory;
}

ValueId ProgramBuilder::seed(std::int64_t bytes, at::Device device) {
  const ValueId memory = made(bytes, device);
  program_.values.back().held = true;
  return memory;
}

void ProgramBuilder::grow(ValueId memory, std::int64_t bytes) {
  if (elsewhere_[index(memory)] != 0) return;
  std::int64_t& known = program_.values[index(memory)].bytes;
  known = std::max(known, granted_bytes(program_.device, bytes));
}

void ProgramBuilder::constant(ValueId memory, const at::Tensor& tensor) {
  program_.constants.emplace_back(memory, tensor);
}

void ProgramBuilder::input(std::optional<TensorUse> use) { program_.inputs.push_back(std::move(use)); }

bool ProgramBuilder::is_constant(ValueId memory) const {
  return std::ranges::any_of(program_.constants, [&](const auto& constant) { return constant.first == memory; });
}

TensorUse ProgramBuilder::now(TensorUse use) const {
  use.value = latest_[index(use.value)];
  return use;
}

void ProgramBuilder::use_latest(Call& call) const {
  for (Argument& argument : call.arguments) {
    for (auto& use : argument.tensors) {
      if (use) use = now(*use);
    }
  }
}

ValueId ProgramBuilder::new_version(ValueId old) {
  const ValueId made = add_value(program_.values[index(old)].bytes, elsewhere_[index(old)] != 0);
  program_.values.back().overwrites = old;
  memory_.back() = memory_[index(old)];
  latest_[index(memory_.back())] = made;
  return made;
}

// Whether the call runs on the budgeted device, so that it draws from the generator there. Attention there also returns
// the position of the generator, which may be on the host.
bool ProgramBuilder::is_here(const SeenCall& seen) const {
  const auto here = [&](const std::optional<TensorUse>& use) { return use && elsewhere_[index(use->value)] == 0; };
  return (seen.results.empty() || std::ranges::any_of(seen.results, here)) &&
         std::ranges::all_of(seen.facts.written, [&](std::size_t i) {
           return std::ranges::all_of(seen.call.arguments[i].tensors,
                                      [&](const auto& use) { return !use || here(use); });
         });
}

ValueId ProgramBuilder::save_generator(const ProgramOp& of) {
  ProgramOp save = no_call(ProgramOp::Kind::kGeneratorState, of.name + "_state", of.phase, of.scope);
  if (token_ != kNoValue) save.also_reads = {token_};
  const ValueId state = add_value(generator_state_bytes(program_.device));
  save.also_makes = {state};
  program_.ops.push_back(std::move(save));
  return state;
}

// Notes the seed of an op that is the plain sum of a gradient from the caller and another value.
void ProgramBuilder::note_added_seed(ProgramOp& op) const {
  const Call& call = *op.call;
  if (call.op.operator_name().name != "aten::add" || call.op.operator_name().overload_name != "Tensor") return;
  if (!call.arguments[2].constant.isInt() || call.arguments[2].constant.toInt() != 1) return;
  if (op.outputs.size() != 1 || !op.outputs.front()) return;
  std::vector<ValueId> seeds;
  std::vector<ValueId> others;
  for (const Argument& argument : {call.arguments[0], call.arguments[1]}) {
    if (argument.kind != Argument::Kind::kTensor) return;
    const TensorUse& use = *argument.tensors.front();
    if (use.geometry != op.outputs.front()->geometry) return;
    const bool is_seed = std::ranges::any_of(
        program_.seeds, [&](const std::optional<TensorUse>& seed) { return seed && seed->value == use.value; });
    (is_seed ? seeds : others).push_back(use.value);
  }
  if (seeds.size() != 1) return;
  op.added_seed = seeds.front();
  op.added_to = others.front();
}

OpId ProgramBuilder::call(SeenCall seen) {
  ProgramOp op;
  op.name = std::move(seen.name);
  op.scope = std::move(seen.scope);
  op.phase = phase_;
  op.once = !seen.repeats;
  op.expected = seen.expected;
  if (seen.facts.random && is_here(seen)) {
    op.generator_state = save_generator(op);
  } else if (seen.facts.random) {
    op.once = true;
  }
  simplify(seen.call);
  use_latest(seen.call);
  if (seen.first_call) use_latest(*seen.first_call);
  op.outputs = std::move(seen.results);
  op.first_call = std::move(seen.first_call);
  op.call = std::move(seen.call);
  note_added_seed(op);
  for (const std::size_t i : seen.facts.written) {
    for (const ValueId old : values_of(op.call->arguments[i].tensors)) {
      if (latest_[index(memory_[index(old)])] != old) continue;  // another argument lies there too
      op.also_makes.push_back(new_version(old));
      op.mutates = true;
    }
  }
  if (op.generator_state != kNoValue) op.also_makes.push_back(token_ = add_value(0));
  const OpId id = op_id(program_.ops.size());
  program_.ops.push_back(std::move(op));
  if (!seen.facts.statistics.empty()) add_statistics(seen.facts.statistics);
  return id;
}

// Adds the statistics of the batch norm that was added last.
void ProgramBuilder::add_statistics(const std::vector<std::size_t>& arguments) {
  ProgramOp& op = program_.ops.back();
  ProgramOp effect = no_call(ProgramOp::Kind::kEffect, op.name + "_statistics", op.phase, op.scope);
  op.first_call = op.call;
  for (const std::size_t i : arguments) {
    const ValueId old = op.call->arguments[i].tensors.front()->value;
    op.call->arguments[i] = Argument{};
    if (latest_[index(memory_[index(old)])] != old) continue;  // both on one storage
    effect.also_reads.push_back(old);
    effect.also_makes.push_back(new_version(old));
  }
  constexpr std::size_t kSavedMean = 1;
  effect.also_reads.push_back(op.outputs.at(kSavedMean).value().value);
  program_.ops.push_back(std::move(effect));
}

void ProgramBuilder::end_forward(Uses outputs, Uses seeds) {
  for (auto& use : outputs) {
    if (!use) continue;
    use = now(*use);
    if (!is_resident(use->value)) program_.values[index(use->value)].held = true;
  }
  program_.forward_outputs = std::move(outputs);
  program_.seeds = std::move(seeds);
  ProgramOp caller = no_call(ProgramOp::Kind::kCaller, "caller", Phase::kCaller);
  caller.also_reads = values_of(program_.forward_outputs);
  caller.also_makes = values_of(program_.seeds);
  caller.also_makes.push_back(add_value(0));
  program_.values.back().held = true;
  program_.ops.push_back(std::move(caller));
  phase_ = Phase::kBackward;
}

TensorUse ProgramBuilder::copied(const Gradient& gradient, const TensorUse& use) {
  ProgramOp copy;
  copy.name = gradient.name + "_copy";
  copy.scope = gradient.scope;
  copy.phase = Phase::kBackward;
  copy.call = Call{c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", ""), {}};
  copy.call->arguments = {{.kind = Argument::Kind::kTensor, .tensors = {use}},
                          {.constant = static_cast<std::int64_t>(at::MemoryFormat::Preserve)}};
  const Geometry& geometry = use.geometry;
  const bool elsewhere = elsewhere_[index(use.value)] != 0;
  const TensorUse made{add_value(granted_bytes(program_.device, dense_bytes(geometry)), elsewhere),
                       {.dtype = geometry.dtype,
                        .sizes = geometry.sizes,
                        .strides = at::infer_dense_strides(geometry.sizes, geometry.strides)}};
  copy.outputs = {made};
  program_.ops.push_back(std::move(copy));
  return made;
}

void ProgramBuilder::hand_over(const std::vector<std::optional<Gradient>>& gradients) {
  ProgramOp hand_over = no_call(ProgramOp::Kind::kHandOver, "hand_over", Phase::kBackward);
  std::set<ValueId> taken;
  for (const auto& gradient : gradients) {
    program_.gradients.emplace_back();
    if (!gradient) continue;
    TensorUse use = now(gradient->use);
    const ProgramValue& value = program_.values[index(use.value)];
    if (gradient->variable && !taken_without_copy(use.geometry, *gradient->variable)) {
      const std::int64_t bytes = granted_bytes(program_.device, dense_bytes(*gradient->variable));
      if (elsewhere_[index(use.value)] == 0) hand_over.workspace_bytes = std::max(hand_over.workspace_bytes, bytes);
    } else if (taken.contains(use.value) || value.held || is_resident(use.value)) {
      use = copied(*gradient, use);
    }
    taken.insert(use.value);
    program_.gradients.back() = std::move(use);
  }
  hand_over.also_reads.assign(taken.begin(), taken.end());
  program_.ops.push_back(std::move(hand_over));
}

// Finds ops that must run once: those that read or write memory that changes during the step and that the step does not
// own.
void ProgramBuilder::find_single_runs() {
  std::vector<std::uint8_t> changes(program_.values.size(), 0);
  for (std::size_t i = 0; i < program_.values.size(); ++i) {
    const ValueId old = program_.values[i].overwrites;
    if (old == kNoValue || !is_resident(old)) continue;
    changes[index(old)] = 1;
    if (latest_[index(memory_[i])] == value_id(i)) program_.new_contents.push_back(value_id(i));
  }
  for (ProgramOp& op : program_.ops) {
    const auto read = reads(op);
    if (std::ranges::any_of(read, [&](ValueId value) { return changes[index(value)] != 0; })) op.once = true;
  }
}

Program ProgramBuilder::finish(const std::vector<std::optional<Gradient>>& gradients, std::optional<bool> split) {
  hand_over(gradients);
  find_single_runs();
  origins_.resize(program_.ops.size());
  for (std::size_t i = 0; i < origins_.size(); ++i) origins_[i] = op_id(i);
  const auto compose = [&](const std::vector<OpId>& later) {
    std::vector<OpId> origins;
    for (const OpId op : later) origins.push_back(origins_[index(op)]);
    origins_ = std::move(origins);
  };
  compose(split_collectives(program_));
  if (split.value_or(program_.device.is_cuda())) compose(split_convolutions(program_));
  write_in_place(program_);
  return std::move(program_);
}

}  // namespace reprise
