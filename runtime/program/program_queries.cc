#include "runtime/program/program_queries.h"

#include <algorithm>
#include <unordered_set>

namespace reprise {

std::int64_t resident_bytes(const Program& program) {
  std::int64_t total = 0;
  for (const ProgramValue& value : program.values) {
    if (value.residence == Residence::kResident) total += value.bytes;
  }
  return total;
}

std::int64_t number_bytes(const Program& program) {
  std::int64_t total = 0;
  std::unordered_set<const c10::StorageImpl*> seen;  // the calls of one op share theirs
  for (const ProgramOp& op : program.ops) {
    for (const auto* call : {&op.call, &op.first_call, &op.in_place_call}) {
      if (!*call) continue;
      for (const Argument& argument : (*call)->arguments) {
        if (!argument.constant.isTensor() || !argument.constant.toTensor().defined()) continue;
        const c10::Storage& storage = argument.constant.toTensor().storage();
        if (seen.insert(storage.unsafeGetStorageImpl()).second) total += static_cast<std::int64_t>(storage.nbytes());
      }
    }
  }
  return total;
}

std::int64_t hand_over_bytes(const Program& program) {
  const auto found = std::ranges::find(program.ops, ProgramOp::Kind::kHandOver, &ProgramOp::kind);
  return found == program.ops.end() ? 0 : found->workspace_bytes;
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

}  // namespace reprise
