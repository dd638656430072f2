#include "runtime/costs/other_sizes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "runtime/costs/measure.h"
#include "runtime/costs/roofline.h"
#include "runtime/device/generator.h"
#include "runtime/kernels/kernel.h"
#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

constexpr double kFarther = 2;            // how far beyond the known sizes what was seen there still holds
constexpr std::int64_t kEnoughSizes = 2;  // at which a call needed the same workspace

std::int64_t scaled(std::int64_t time_ns, std::int64_t from, std::int64_t to) {
  return std::llround(static_cast<double>(time_ns) * static_cast<double>(to) /
                      static_cast<double>(std::max<std::int64_t>(1, from)));
}

bool chooses_by_size(const Program& program, const ProgramOp& op) {
  return program.device.is_cuda() && op.call->op.operator_name().name.find("convolution") != std::string::npos;
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
      known_(program_->ops.size()) {
  for (std::size_t i = 0; i < program_->ops.size(); ++i) {
    const ProgramOp& op = program_->ops[i];
    if (op.kind == ProgramOp::Kind::kCall) learn(i, moved_bytes(op), costs_.workspace_bytes[i]);
  }
}

void OtherSizes::learn(std::size_t op, double moved, std::int64_t workspace_bytes) {
  Known& known = known_[op];
  known.is_constant = known.sizes == 0 || (known.is_constant && workspace_bytes == known.workspace_bytes);
  known.workspace_bytes = workspace_bytes;
  if (known.sizes > 0 && known.least_bytes <= moved && moved <= known.most_bytes) return;
  known.least_bytes = known.sizes == 0 ? moved : std::min(known.least_bytes, moved);
  known.most_bytes = std::max(known.most_bytes, moved);
  ++known.sizes;
}

bool OtherSizes::is_certain(const Program& program, std::size_t op, double moved) const {
  const Known& known = known_[op];
  return known.sizes >= kEnoughSizes && known.is_constant && moved <= kFarther * known.most_bytes &&
         kFarther * moved >= known.least_bytes && !chooses_by_size(program, program.ops[op]);
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
    const double moved = moved_bytes(op);
    if (is_certain(program, i, moved)) {
      priced.costs.workspace_bytes[i] = known_[i].workspace_bytes;
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
    learn(i, moved, measured.at(signature));
  }
  return priced;
}

}  // namespace reprise
