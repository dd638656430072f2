#include "runtime/program/passes/split_convolutions.h"

#include <ATen/core/List.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <utility>

namespace reprise {
namespace {

constexpr std::int64_t kShare = 3;  // split if its operands have at least 1 / kShare of the bytes of the largest
constexpr std::size_t kGradient = 0;
constexpr std::size_t kInput = 1;
constexpr std::size_t kWeight = 2;

const Geometry& geometry(const ProgramOp& op, std::size_t argument) {
  return op.call->arguments[argument].tensors.front()->geometry;
}

bool is_convolution(const ProgramOp& op) {
  return op.kind == ProgramOp::Kind::kCall && op.call->op.operator_name().name == "aten::convolution_backward";
}

// With other layouts, kernels would mistake the layout of the stand-in.
bool has_channels_last(const Geometry& geometry) {
  return c10::is_channels_last_strides_2d(geometry.sizes, geometry.strides) ||
         c10::is_channels_last_strides_3d(geometry.sizes, geometry.strides);
}

std::int64_t bytes(const Geometry& geometry) {
  return c10::multiply_integers(geometry.sizes) * static_cast<std::int64_t>(c10::elementSize(geometry.dtype));
}

// The bytes of the gradients of output and input, and of the input.
std::int64_t operand_bytes(const ProgramOp& op) {
  return bytes(geometry(op, kGradient)) + 2 * bytes(geometry(op, kInput));
}

bool has_two_parts(const ProgramOp& op) {
  return op.outputs.size() == 3 && op.outputs[0] && op.outputs[1] && op.also_makes.empty() && !op.in_place_call &&
         !has_channels_last(geometry(op, kInput)) && !has_channels_last(geometry(op, kWeight));
}

ProgramOp part(const ProgramOp& op, const std::string& name, std::initializer_list<bool> mask) {
  ProgramOp made = op;
  made.name += name;
  made.call->arguments.back() = {.constant = c10::List<bool>(mask)};
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (!mask.begin()[i]) made.outputs[i].reset();
  }
  return made;
}

}  // namespace

std::vector<OpId> split_convolutions(Program& program) {
  std::int64_t largest = 0;
  for (const ProgramOp& op : program.ops) {
    if (is_convolution(op)) largest = std::max(largest, operand_bytes(op));
  }
  std::vector<ProgramOp> ops;
  std::vector<OpId> origins;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    ProgramOp& op = program.ops[i];
    origins.push_back(op_id(i));
    if (!is_convolution(op) || !has_two_parts(op) || kShare * operand_bytes(op) < largest) {
      ops.push_back(std::move(op));
      continue;
    }
    ops.push_back(part(op, "_weight", {false, true, op.outputs[2].has_value()}));
    ProgramOp input = part(op, "_input", {true, false, false});
    TensorUse& stand_in = *input.call->arguments[kInput].tensors.front();
    stand_in.value = input.call->arguments[kGradient].tensors.front()->value;
    stand_in.geometry.strides.assign(stand_in.geometry.sizes.size(), 0);
    stand_in.geometry.offset = geometry(op, kGradient).offset;
    ops.push_back(std::move(input));
    origins.push_back(op_id(i));
  }
  program.ops = std::move(ops);
  return origins;
}

}  // namespace reprise
