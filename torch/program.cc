#include "torch/program.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "reprise/error.h"

namespace reprise {
namespace {

void add_once(std::vector<ValueId>& list, ValueId value) {
  if (value != kNoValue && std::ranges::find(list, value) == list.end()) list.push_back(value);
}

template <typename Visit>
void for_each_tensor(const Call& call, Visit visit) {
  for (const Argument& argument : call.arguments) {
    for (const auto& tensor : argument.tensors) {
      if (tensor) visit(*tensor);
    }
  }
}

}  // namespace

Geometry geometry_of(const at::Tensor& tensor) {
  return {.dtype = tensor.scalar_type(),
          .sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .offset = tensor.storage_offset(),
          .conj = tensor.is_conj(),
          .neg = tensor.is_neg()};
}

std::int64_t extent_bytes(const Geometry& geometry) {
  std::int64_t last = geometry.offset;
  for (std::size_t i = 0; i < geometry.sizes.size(); ++i) {
    if (geometry.sizes[i] == 0) return 0;
    last += (geometry.sizes[i] - 1) * geometry.strides[i];
  }
  return (last + 1) * static_cast<std::int64_t>(c10::elementSize(geometry.dtype));
}

std::string to_string(const Geometry& geometry) {
  std::ostringstream text;
  text << geometry.dtype << at::IntArrayRef(geometry.sizes) << " strides " << at::IntArrayRef(geometry.strides);
  if (geometry.offset != 0) text << " offset " << geometry.offset;
  if (geometry.conj) text << " conj";
  if (geometry.neg) text << " neg";
  return text.str();
}

OpId Program::caller_op() const {
  const auto found = std::ranges::find(ops, ProgramOp::Kind::kCaller, &ProgramOp::kind);
  return found == ops.end() ? kNoOp : op_id(static_cast<std::size_t>(found - ops.begin()));
}

std::vector<ValueId> reads(const ProgramOp& op) {
  std::vector<ValueId> list;
  if (op.call) {
    for_each_tensor(*op.call, [&](const TensorUse& use) { add_once(list, use.value); });
  }
  add_once(list, op.generator_state);
  for (const ValueId value : op.also_reads) add_once(list, value);
  return list;
}

std::vector<ValueId> makes(const ProgramOp& op) {
  std::vector<ValueId> list;
  for (const auto& output : op.outputs) {
    if (output) add_once(list, output->value);
  }
  for (const ValueId value : op.also_makes) add_once(list, value);
  return list;
}

Graph make_graph(const Program& program) {
  GraphBuilder builder(program.name);
  for (const ProgramValue& value : program.values) {
    const ValueId id = value.residence == Residence::kPlanned    ? builder.value(value.bytes)
                       : value.residence == Residence::kArriving ? builder.arriving(value.bytes)
                                                                 : builder.resident(value.bytes);
    if (value.held) builder.hold(id);
    if (value.overwrites != kNoValue) builder.overwrite(id, value.overwrites);
  }
  std::map<std::string, ScopeId> scopes;
  for (const ProgramOp& op : program.ops) {
    ScopeId scope = kNoScope;
    if (!op.scope.empty()) {
      const auto [entry, is_new] = scopes.try_emplace(op.scope, kNoScope);
      if (is_new) entry->second = builder.scope(op.scope);
      scope = entry->second;
    }
    builder.op({.name = op.name,
                .scope = scope,
                .phase = op.phase,
                .time_ns = op.time_ns,
                .workspace_bytes = op.workspace_bytes,
                .once = op.once,
                .inputs = reads(op),
                .outputs = makes(op)});
  }
  std::vector<ValueId> outputs = program.new_contents;
  for (const auto* list : {&program.forward_outputs, &program.gradients}) {
    for (const auto& use : *list) {
      if (use) add_once(outputs, use->value);
    }
  }
  for (const ValueId value : outputs) builder.output(value);
  return builder.build();
}

std::string signature(const Program& program, OpId op) {
  const Call& call = program.ops[index(op)].call.value();
  std::ostringstream text;
  text.precision(17);
  text << call.op.operator_name();
  std::map<ValueId, std::size_t> order;
  for (const Argument& argument : call.arguments) {
    text << ';';
    if (argument.kind == Argument::Kind::kConstant) {
      text << argument.constant;
      continue;
    }
    for (const auto& tensor : argument.tensors) {
      if (!tensor) {
        text << "none,";
        continue;
      }
      const std::size_t number = order.try_emplace(tensor->value, order.size()).first->second;
      text << '#' << number << ' ' << to_string(tensor->geometry) << ',';
      const std::int64_t bytes = program.values[index(tensor->value)].bytes;
      if (bytes > extent_bytes(tensor->geometry)) text << " of " << bytes;  // some operators copy whole storages
    }
  }
  return text.str();
}

}  // namespace reprise
