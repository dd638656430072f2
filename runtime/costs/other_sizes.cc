#include "runtime/costs/other_sizes.h"

#include <ATen/Context.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
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

// Products of a BLAS, which has its own memory; kernels that take a dense copy of an operand at most.
constexpr std::array<std::string_view, 4> kProducts{"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"};
constexpr std::array<std::string_view, 6> kCopyAtMost{"aten::_to_copy",     "aten::clone",
                                                      "aten::_softmax",     "aten::_softmax_backward_data",
                                                      "aten::_log_softmax", "aten::_log_softmax_backward_data"};

bool is_in_full_precision(const ProgramOp& op) {
  const auto is_full = [](const Geometry& geometry) {
    return geometry.dtype == at::kDouble ||
           (geometry.dtype == at::kFloat &&
            at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST);
  };
  return std::ranges::all_of(op.outputs, [&](const auto& output) { return !output || is_full(output->geometry); });
}

// Whether what a call allocates beside its results depends on how its operands lie in memory, and not on how large they
// are. Other kernels take buffers for each thread, split rows, or choose another algorithm from some size on.
bool allocates_alike_at_all_sizes(const Program& program, const ProgramOp& op) {
  if (op.call->op.hasTag(at::Tag::pointwise)) return true;
  const std::string& name = op.call->op.operator_name().name;
  if (!program.device.is_cpu()) return false;
  if (std::ranges::count(kCopyAtMost, name) != 0) return true;
  return std::ranges::count(kProducts, name) != 0 && at::hasMKL() && is_in_full_precision(op);
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

OtherSizes::Estimate OtherSizes::estimate(const Program& program) {
  Estimate known{.costs = bare_costs(program)};
  if (!has_same_calls(*program_, program)) {
    known.wrong = "it has other calls at this size";
    return known;
  }
  const std::vector<std::int64_t> roofline = roofline_ns(program, rates_of(program.device.type()));
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const ProgramOp& op = program.ops[i];
    if (op.kind != ProgramOp::Kind::kCall) continue;
    known.costs.time_ns[i] = scaled(costs_.time_ns[i], roofline_[i], roofline[i]);
    const std::vector<std::int64_t> bytes = tensor_bytes(op);
    const bool follows_rule = allocates_alike_at_all_sizes(program, op);
    if (const auto workspace_bytes = follows_rule ? rules_[i].at(bytes) : std::nullopt) {
      known.costs.workspace_bytes[i] = *workspace_bytes;
      continue;
    }
    std::string signature = Kernel(*op.call).describe(program);
    const auto seen = book_.calls().find(signature);
    if (seen == book_.calls().end()) {
      known.unsure.push_back({op_id(i), std::move(signature)});
      continue;
    }
    known.costs.time_ns[i] = seen->second.time_ns;
    known.costs.workspace_bytes[i] = seen->second.workspace_bytes;
    if (follows_rule) rules_[i].learn(bytes, seen->second.workspace_bytes);
    if (!lies_as(program, op_id(i), seen->second.results)) {
      known.wrong = words_of(op);
      return known;
    }
  }
  return known;
}

OtherSizes::Priced OtherSizes::price(const Program& program) {
  Estimate known = estimate(program);
  Priced priced{.costs = std::move(known.costs), .wrong = std::move(known.wrong)};
  if (!priced.wrong.empty()) return priced;
  const GeneratorReplay random_numbers_stay(at::kCPU, generator_state(at::kCPU));
  std::map<std::string, std::int64_t> measured;  // workspaces by signature
  for (Unsure& unsure : known.unsure) {
    const ProgramOp& op = program.ops[index(unsure.op)];
    const auto [entry, is_new] = measured.try_emplace(std::move(unsure.signature));
    if (is_new) {
      const Measurement found = measure_memory(program, unsure.op);
      entry->second = found.workspace_bytes;
      ++priced.measured;
      if (!lies_as(program, unsure.op, found.outputs)) {
        priced.wrong = words_of(op);
        return priced;
      }
    }
    const std::size_t i = index(unsure.op);
    priced.costs.workspace_bytes[i] = entry->second;
    if (allocates_alike_at_all_sizes(program, op)) rules_[i].learn(tensor_bytes(op), entry->second);
  }
  return priced;
}

}  // namespace reprise
