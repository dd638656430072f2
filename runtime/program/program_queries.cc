#include "runtime/program/program_queries.h"

#include <ATen/TensorGeometry.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <numeric>

#include "runtime/program/collectives.h"

namespace reprise {
namespace {

at::Tensor empty_seed(const Program& program, const TensorUse& use) {
  return at::empty_strided(use.geometry.sizes, use.geometry.strides,
                           at::TensorOptions().dtype(use.geometry.dtype).device(program.device));
}

// Whether the elements leave no gaps and none lies in memory twice.
bool is_dense(const Geometry& geometry) {
  std::vector<std::size_t> order(geometry.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return geometry.strides[i]; });
  std::int64_t expected = 1;
  for (const std::size_t i : order) {
    if (geometry.sizes[i] == 1) continue;
    if (geometry.strides[i] != expected) return false;
    expected *= geometry.sizes[i];
  }
  return true;
}

}  // namespace

std::string words_of(const ProgramOp& op) {
  std::string text = "'" + op.name + "'";
  if (op.call) text += " (" + toString(op.call->op.operator_name()) + ")";
  return op.scope.empty() ? text : text + " in " + op.scope;
}

Costs bare_costs(const Program& program) {
  Costs costs;
  for (const ProgramOp& op : program.ops) {
    const bool is_whole = op.stream == 0 && op.call && is_collective(*op.call);
    costs.workspace_bytes.push_back(is_whole ? workspace_of(program, op) : op.workspace_bytes);
  }
  costs.time_ns.resize(program.ops.size(), 0);
  for (const ProgramValue& value : program.values) costs.value_bytes.push_back(value.bytes);
  return costs;
}

std::int64_t resident_bytes(const Program& program) {
  std::int64_t total = 0;
  for (const ProgramValue& value : program.values) {
    if (value.residence == Residence::kResident) total += value.bytes;
  }
  return total;
}

std::vector<at::Tensor> own_tensors(const Program& program) {
  std::vector<at::Tensor> own;
  for (const auto& [value, tensor] : program.constants) own.push_back(tensor);
  for (const ProgramOp& op : program.ops) {
    for_each_call(op, [&](const Call& call) {
      for (const Argument& argument : call.arguments) {
        if (argument.constant.isTensor()) own.push_back(argument.constant.toTensor());
      }
    });
  }
  return own;
}

std::int64_t hand_over_bytes(const Program& program) {
  const auto found = std::ranges::find(program.ops, ProgramOp::Kind::kHandOver, &ProgramOp::kind);
  return found == program.ops.end() ? 0 : found->workspace_bytes;
}

bool taken_without_copy(const Geometry& gradient, const Geometry& variable) {
  if (gradient.dtype != variable.dtype || gradient.sizes != variable.sizes) return false;
  if (!is_dense(variable)) return at::geometry_is_contiguous(gradient.sizes, gradient.strides);
  for (std::size_t i = 0; i < variable.sizes.size(); ++i) {
    if (variable.sizes[i] != 1 && gradient.strides[i] != variable.strides[i]) return false;
  }
  return true;
}

ValueId caller_value(const Program& program) {
  const std::vector<ValueId> seeds = values_of(program.seeds);
  for (const ValueId made : program.ops[index(program.caller_op())].also_makes) {
    if (std::ranges::find(seeds, made) == seeds.end()) return made;
  }
  return kNoValue;
}

std::vector<std::size_t> inputs_with(const Program& program, const std::set<ValueId>& wanted) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    if (program.inputs[i] && wanted.contains(program.inputs[i]->value)) positions.push_back(i);
  }
  return positions;
}

std::vector<at::Tensor> empty_seeds(const Program& program) {
  std::vector<at::Tensor> seeds;
  for (const auto& use : program.seeds) seeds.push_back(use ? empty_seed(program, *use) : at::Tensor());
  return seeds;
}

std::vector<at::Tensor> loss_seeds(const Program& program) {
  std::vector<at::Tensor> seeds = empty_seeds(program);
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (seeds[i].defined()) seeds[i].fill_(i == 0 ? 1 : 0);
  }
  return seeds;
}

void fill_seeds(const Program& program, const std::set<std::size_t>& optional, std::vector<at::Tensor>& seeds) {
  for (std::size_t i = 0; i < std::min(seeds.size(), program.seeds.size()); ++i) {
    if (seeds[i].defined() || !program.seeds[i] || optional.contains(i)) continue;
    seeds[i] = empty_seed(program, *program.seeds[i]).zero_();
  }
}

}  // namespace reprise
