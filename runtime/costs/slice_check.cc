#include "runtime/costs/slice_check.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/device/device_thread.h"
#include "runtime/device/generator.h"
#include "runtime/kernels/call_guards.h"
#include "runtime/kernels/kernel.h"
#include "runtime/messages.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

// Memory of some value, by the ids of one program.
using Memory = std::map<ValueId, at::Tensor>;

at::Tensor empty_bytes(std::int64_t bytes, at::Device device) {
  return at::empty({std::max<std::int64_t>(bytes, 16)}, at::TensorOptions(at::kByte).device(device));
}

// Numbers as they occur in a step; any index may be 0 or 1. Drawing a number takes longer than what most calls do with
// it, so large memory repeats a prime number of them, by which rows differ nevertheless.
at::Tensor made_up(std::int64_t bytes, at::ScalarType dtype, at::Device device) {
  constexpr std::int64_t kDrawn = 65521;
  at::Tensor memory = empty_bytes(bytes, device);
  const std::int64_t count = memory.numel() / static_cast<std::int64_t>(c10::elementSize(dtype));
  at::Tensor numbers = view_of(memory, {.dtype = dtype, .sizes = {count}, .strides = {1}});
  const std::int64_t drawn = std::min(count, kDrawn);
  const at::TensorOptions there = at::TensorOptions().device(device);
  numbers.narrow(0, 0, drawn)
      .copy_(c10::isFloatingType(dtype) ? at::randn({drawn}, there.dtype(at::kFloat))
                                        : at::randint(2, {drawn}, there.dtype(at::kLong)));
  for (std::int64_t done = kDrawn; done < count; done *= 2) {
    const std::int64_t next = std::min(done, count - done);
    numbers.narrow(0, done, next).copy_(numbers.narrow(0, 0, next));
  }
  return memory;
}

std::vector<at::Tensor> results_of(const Call& call, const Memory& memory) {
  std::vector<c10::IValue> stack;
  for (const Argument& argument : call.arguments) {
    const bool is_tensor = argument.kind == Argument::Kind::kTensor && argument.tensors.front();
    if (!is_tensor) {
      stack.push_back(argument.constant);
      continue;
    }
    const TensorUse& use = *argument.tensors.front();
    stack.emplace_back(view_of(memory.at(use.value), use.geometry));
  }
  Kernel(call).run(stack);
  return tensors_of(stack);
}

// One call of the chain, whole and in parts.
class Comparison {
 public:
  Comparison(const SlicedProgram& sliced, OpId op) : sliced_(sliced), op_(sliced.whole->ops[index(op)]) {
    for_each_use(*op_.call, [&](const TensorUse& use) {
      const std::int64_t bytes = std::max(sliced.whole->values[index(use.value)].bytes, extent_bytes(use.geometry));
      if (!given_.contains(use.value)) given_[use.value] = made_up(bytes, use.geometry.dtype, device());
    });
    const std::vector<at::Tensor> results = results_of(*op_.call, given_);
    for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
      if (!op_.outputs[i]) continue;
      const TensorUse& output = *op_.outputs[i];
      is_same_ = is_same_ && geometry_of(results[i]) == output.geometry;
      expected_[output.value] = bytes_of(results[i]).slice(0, 0, extent_bytes(output.geometry));
    }
  }

  bool holds_for(const std::vector<OpId>& parts) {
    for (const OpId id : parts) {
      const ProgramOp& part = sliced_.program->ops[index(id)];
      for_each_use(*part.call, [&](const TensorUse& use) { provide(use.value); });
      const std::vector<at::Tensor> results = results_of(*part.call, memory_);
      if (part.mutates) continue;
      for (std::size_t i = 0; i < part.outputs.size(); ++i) {
        if (part.outputs[i]) take(*part.outputs[i], results[i]);
      }
    }
    for (const auto& [end, memory] : ends_) {
      const at::Tensor& expected = expected_.at(end);
      is_same_ = is_same_ && at::equal(memory.slice(0, 0, expected.numel()), expected);
    }
    return is_same_;
  }

 private:
  [[nodiscard]] at::Device device() const { return sliced_.whole->device; }
  [[nodiscard]] const ValueOrigin& origin(ValueId value) const { return sliced_.value_origins[index(value)]; }

  // What a part reads: the whole, a copy of its part in memory of its own, or memory that its end is written to.
  void provide(ValueId value) {
    if (memory_.contains(value)) return;
    const ValueOrigin& of = origin(value);
    if (expected_.contains(of.whole)) {
      const auto [end, is_new] = ends_.try_emplace(of.whole);
      if (is_new) end->second = empty_bytes(sliced_.whole->values[index(of.whole)].bytes, device()).fill_(0xA5);
      memory_[value] = end->second;
    } else if (of.bytes < 0) {
      memory_[value] = given_.at(of.whole);
    } else {
      memory_[value] = given_.at(of.whole).slice(0, of.begin_bytes, of.begin_bytes + of.bytes).clone();
    }
  }
  void take(const TensorUse& output, const at::Tensor& result) {
    const ValueOrigin& of = origin(output.value);
    memory_[output.value] = bytes_of(result);
    is_same_ = is_same_ && geometry_of(result) == output.geometry &&
               at::equal(bytes_of(result).slice(0, 0, of.bytes),
                         expected_.at(of.whole).slice(0, of.begin_bytes, of.begin_bytes + of.bytes));
  }

  const SlicedProgram& sliced_;
  const ProgramOp& op_;
  Memory given_;     // by value of the whole program
  Memory expected_;  // likewise
  Memory ends_;      // likewise: what the parts wrote
  Memory memory_;    // by value of the sliced program
  bool is_same_ = true;
};

void on_device(at::Device device, const std::function<void()>& then) {
  on_device_thread(device, [&] {
    const CallGuards guards(device);
    const GeneratorReplay generator(device, generator_state(device));
    const GeneratorReplay of_the_host(at::kCPU, generator_state(at::kCPU));
    then();
  });
}

bool keeps_its_bits(const Call& loss, at::Device device) {
  constexpr std::size_t kRowsArgument = 0, kReduction = 3;
  const Geometry& rows = loss.arguments[kRowsArgument].tensors.front()->geometry;
  const std::int64_t reduction = loss.arguments[kReduction].constant.toInt();
  const Geometry dense{.dtype = rows.dtype, .sizes = rows.sizes, .strides = {rows.sizes[1], 1}};
  const at::Tensor numbers = view_of(made_up(extent_bytes(dense), rows.dtype, device), dense);
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(device);
  const at::Tensor labels = at::randint(rows.sizes[1], {rows.sizes[0]}, integers);
  const at::Tensor is_ignored = at::randint(8, {rows.sizes[0]}, integers).eq(0);
  const auto whole = at::nll_loss_forward(numbers, labels.masked_fill(is_ignored, -100), {}, reduction, -100);
  const at::Tensor picked = at::gather(numbers, 1, labels.unsqueeze(1));
  const auto kept =
      at::nll_loss_forward(picked, at::zeros_like(labels).masked_fill(is_ignored, -100), {}, reduction, -100);
  return at::equal(bytes_of(std::get<0>(whole)), bytes_of(std::get<0>(kept))) &&
         at::equal(bytes_of(std::get<1>(whole)), bytes_of(std::get<1>(kept)));
}

}  // namespace

std::set<OpId> differing_calls(const SlicedProgram& sliced) {
  std::map<OpId, std::vector<OpId>> parts;
  for (std::size_t i = 0; i < sliced.op_origins.size(); ++i) parts[sliced.op_origins[i]].push_back(op_id(i));
  std::set<OpId> differing;
  on_device(sliced.whole->device, [&] {
    for (const OpId op : sliced.chain.ops) {
      if (!Comparison(sliced, op).holds_for(parts.at(op))) differing.insert(op);
    }
  });
  return differing;
}

std::optional<SlicedProgram> slice_exactly(const Program& program, std::int64_t slices) try {
  if (!losses_keep_their_bits(program)) return std::nullopt;
  const auto whole = prepare_for_slices(program);
  std::set<OpId> never;
  while (const auto chain = find_chain(*whole, Sums::kWhole, never)) {
    if (chain->units < slices) return std::nullopt;
    auto sliced = slice_program(whole, *chain, slices);
    if (!sliced) return std::nullopt;
    const std::set<OpId> differing = differing_calls(*sliced);
    if (differing.empty()) return sliced;
    for (const OpId op : differing) {
      log_line(Severity::kInfo, program.name + ": slices of " + words_of(whole->ops[index(op)]) +
                                    " do not have the bits of the whole call on this device");
    }
    never.insert(differing.begin(), differing.end());
  }
  return std::nullopt;
} catch (const c10::OutOfMemoryError&) {
  log_line(Severity::kInfo, program.name + ": slices cannot be compared with the whole, which does not fit the device");
  return std::nullopt;
}

std::optional<SlicedProgram> slice_closely(const Program& program, std::int64_t slices) {
  const auto whole = prepare_for_slices(program);
  const auto chain = find_chain(*whole, Sums::kInSlices);
  return chain && chain->units >= slices ? slice_program(whole, *chain, slices) : std::nullopt;
}

bool losses_keep_their_bits(const Program& program) {
  bool same = true;
  on_device(program.device, [&] {
    for (const ProgramOp& op : program.ops) {
      if (op.kind != ProgramOp::Kind::kCall || op.call->op.operator_name().name != "aten::nll_loss_forward") continue;
      if (op.call->arguments.front().tensors.front()->geometry.sizes.size() == 2) {
        same = same && keeps_its_bits(*op.call, program.device);
      }
    }
  });
  return same;
}

}  // namespace reprise
