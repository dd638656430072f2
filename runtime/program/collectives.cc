#include "runtime/program/collectives.h"

#include <c10/util/accumulate.h>

#include <algorithm>

#include "runtime/device/meter.h"
#include "runtime/program/operator_facts.h"
#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

std::int64_t bytes_of(const Geometry& geometry) {
  return c10::multiply_integers(geometry.sizes) * static_cast<std::int64_t>(c10::elementSize(geometry.dtype));
}

bool is_in_one_piece(const Geometry& geometry) {
  std::int64_t expected = 1;
  for (std::size_t i = geometry.sizes.size(); i-- > 0;) {
    if (geometry.sizes[i] != 1 && geometry.strides[i] != expected) return false;
    expected *= geometry.sizes[i];
  }
  return true;
}

// Which part of a tensor a process takes differs.
std::string anywhere(Geometry geometry) {
  geometry.offset = 0;
  return ' ' + to_string(geometry);
}

void append_values(std::string& text, const char* what, const Program& program, const std::vector<ValueId>& values) {
  text += what;
  for (const ValueId value : values) {
    const ProgramValue& about = program.values[index(value)];
    text += ' ' + std::to_string(index(value)) + ':' + std::to_string(about.bytes);
    if (about.overwrites != kNoValue) text += " over " + std::to_string(index(about.overwrites));
  }
}

}  // namespace

bool is_collective(const Call& call) {
  return call.op.operator_name().name.starts_with("_c10d_functional::") && short_name(call.op) != "wait_tensor";
}

bool moves_bytes(const Call& call) {
  const std::string name = short_name(call.op);
  if (!is_collective(call)) return false;
  return name == "broadcast" || name.starts_with("all_gather_into_tensor");
}

std::int64_t workspace_of(const Program& program, const ProgramOp& collective) {
  const std::string name = short_name(collective.call->op);
  if (name.starts_with("all_reduce") || name == "broadcast") return 0;  // It works in a copy, which is its result.
  std::int64_t total = 0;
  const auto add = [&](std::int64_t bytes) { total += granted_bytes(program.device, bytes); };
  for_each_use(*collective.call, [&](const TensorUse& use) {
    if (!is_in_one_piece(use.geometry)) add(bytes_of(use.geometry));
    if (program.device.is_cpu() && name.starts_with("reduce_scatter")) add(bytes_of(use.geometry));
  });
  if (!program.device.is_cpu() || !name.starts_with("all_gather")) return total;
  for (const auto& output : collective.outputs) add(output ? bytes_of(output->geometry) : 0);
  return total;
}

std::int64_t sent_bytes(const ProgramOp& collective, std::int64_t ranks) {
  std::int64_t operands = 0;
  std::int64_t results = 0;
  for_each_use(*collective.call, [&](const TensorUse& use) { operands += bytes_of(use.geometry); });
  for (const auto& output : collective.outputs) results += output ? bytes_of(output->geometry) : 0;
  const std::int64_t whole = std::max(operands, results);
  const std::int64_t once = whole - whole / ranks;
  return short_name(collective.call->op).starts_with("all_reduce") ? 2 * once : once;
}

std::optional<std::string> group_of(const Call& collective) {
  const Argument* group = collective.argument("group_name");
  if (group == nullptr || !group->constant.isString()) return std::nullopt;
  return group->constant.toStringRef();
}

std::vector<std::string> groups_of(const Program& program) {
  std::vector<std::string> groups;
  for (const ProgramOp& op : program.ops) {
    if (!op.call || !is_collective(*op.call)) continue;
    const auto group = group_of(*op.call);
    if (group && std::ranges::find(groups, *group) == groups.end()) groups.push_back(*group);
  }
  return groups;
}

std::string outline_of(const Program& program) {
  std::string text;
  for (const ProgramOp& op : program.ops) {
    text += words_of(op);
    const auto append = [&](const TensorUse& use) { text += anywhere(use.geometry); };
    if (op.call) for_each_use(*op.call, append);
    text += op.once ? ", once," : ",";
    for (const auto& output : op.outputs) text += output ? anywhere(output->geometry) : " none";
    append_values(text, ", reads", program, reads(op));
    append_values(text, ", makes", program, makes(op));
    text += '\n';
  }
  return text;
}

}  // namespace reprise
