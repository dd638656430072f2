#include "runtime/costs/other_sizes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "runtime/costs/measure.h"
#include "runtime/costs/roofline.h"
#include "runtime/device/generator.h"
#include "runtime/kernels/kernel.h"
#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

std::int64_t scaled(std::int64_t time_ns, std::int64_t from, std::int64_t to) {
  return std::llround(static_cast<double>(time_ns) * static_cast<double>(to) /
                      static_cast<double>(std::max<std::int64_t>(1, from)));
}

bool chooses_by_size(const Program& program, const ProgramOp& op) {
  return program.device.is_cuda() && op.call->op.operator_name().name.find("convolution") != std::string::npos;
}

std::vector<std::int64_t> tensor_bytes(const ProgramOp& op) {
  std::vector<std::int64_t> bytes;
  for_each_use(*op.call, [&](const TensorUse& use) { bytes.push_back(extent_bytes(use.geometry)); });
  for (const auto& output : op.outputs) bytes.push_back(output ? extent_bytes(output->geometry) : 0);
  return bytes;
}

bool has_same_calls(const Program& program, const Program& other) {
  return std::ranges::equal(program.ops, other.ops, [](const ProgramOp& a, const ProgramOp& b) {
    return a.kind == b.kind && a.call.has_value() == b.call.has_value() && (!a.call || a.call->op == b.call->op);
  });
}

}  // namespace

OtherSizes::OtherSizes(std::shared_ptr<const Program> program, Costs costs)
    : program_(std::move(program)),
      costs_(std::move(costs)),
      book_(program_->device),
      roofline_(roofline_ns(*program_, rates_of(program_->device.type()))),
      rules_(program_->ops.size()) {
  for (std::size_t i = 0; i < program_->ops.size(); ++i) {
    const ProgramOp& op = program_->ops[i];
    if (op.kind == ProgramOp::Kind::kCall) rules_[i].learn(tensor_bytes(op), costs_.workspace_bytes[i]);
  }
}

std::optional<std::int64_t> OtherSizes::certain_workspace(const Program& program, std::size_t op,
                                                          std::span<const std::int64_t> bytes) const {
  return chooses_by_size(program, program.ops[op]) ? std::nullopt : rules_[op].at(bytes);
}

OtherSizes::Priced OtherSizes::price(const Program& program) {
  Priced priced{.costs = bare_costs(program)};
  if (!has_same_calls(*program_, program)) {
    priced.wrong = "it has other calls at this size";
    return priced;
  }
  const GeneratorReplay random_numbers_stay(at::kCPU, generator_state(at::kCPU));
  const std::vector<std::int64_t> roofline = roofline_ns(program, rates_of(program.device.type()));
  std::map<std::string, std::int64_t> measured;  // workspaces by signature
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ProgramOp& op = program.ops[i];
    if (op.kind != ProgramOp::Kind::kCall) continue;
    priced.costs.time_ns[i] = scaled(costs_.time_ns[i], roofline_[i], roofline[i]);
    const std::vector<std::int64_t> bytes = tensor_bytes(op);
    if (const auto workspace_bytes = certain_workspace(program, i, bytes)) {
      priced.costs.workspace_bytes[i] = *workspace_bytes;
      continue;
    }
    const std::string signature = Kernel(*op.call).describe(program);
    const auto known = book_.calls().find(signature);
    if (known != book_.calls().end()) {
      priced.costs.time_ns[i] = known->second.time_ns;
      measured.emplace(signature, known->second.workspace_bytes);
      if (!lies_as(program, op_id(i), known->second.results)) priced.wrong = words_of(op);
    } else if (!measured.contains(signature)) {
      const Measurement found = measure_memory(program, op_id(i));
      measured.emplace(signature, found.workspace_bytes);
      ++priced.measured;
      if (!lies_as(program, op_id(i), found.outputs)) priced.wrong = words_of(op);
    }
    if (!priced.wrong.empty()) return priced;
    priced.costs.workspace_bytes[i] = measured.at(signature);
    rules_[i].learn(bytes, measured.at(signature));
  }
  return priced;
}

}  // namespace reprise
