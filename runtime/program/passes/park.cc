#include "runtime/program/passes/park.h"

#include <algorithm>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/meter.h"

namespace reprise {
namespace {

std::int64_t bytes_under(const Program& program, const at::Tensor& tensor) {
  return granted_bytes(program.device, static_cast<std::int64_t>(tensor.storage().nbytes()));
}

}  // namespace

std::shared_ptr<Program> with_state(const Program& program, std::span<const at::Tensor> state) {
  auto made = std::make_shared<Program>(program);
  const auto last = std::ranges::find(made->ops, ProgramOp::Kind::kHandOver, &ProgramOp::kind);
  if (last == made->ops.end()) throw InternalError("'" + program.name + "' has no end that could wait for state");
  for (const at::Tensor& tensor : state) {
    const ValueId value = value_id(made->values.size());
    made->values.push_back({.bytes = bytes_under(program, tensor), .residence = Residence::kArriving});
    made->inputs.emplace_back(TensorUse{value, geometry_of(tensor)});
    last->also_reads.push_back(value);
  }
  made->num_state = state.size();
  return made;
}

bool has_state(const Program& program, std::span<const at::Tensor> state) {
  const std::vector<ValueId> values = state_values(program);
  return std::ranges::equal(values, state, [&](ValueId value, const at::Tensor& tensor) {
    return program.values[index(value)].bytes == bytes_under(program, tensor);
  });
}

std::vector<ValueId> state_values(const Program& program) {
  std::vector<ValueId> values;
  for (std::size_t i = program.inputs.size() - program.num_state; i < program.inputs.size(); ++i) {
    values.push_back(program.inputs[i]->value);
  }
  return values;
}

}  // namespace reprise
