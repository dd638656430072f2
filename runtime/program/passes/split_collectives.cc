#include "runtime/program/passes/split_collectives.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "runtime/program/collectives.h"

namespace reprise {
namespace {

constexpr std::uint32_t kStream = 1;  // of all groups, which take turns (Executor::start)

class Split {
 public:
  explicit Split(Program& program) : program_(program) {
    for (const ProgramOp& op : program.ops) {
      if (op.kind != ProgramOp::Kind::kEffect) continue;
      for (const ValueId made : op.also_makes) changed_.insert(program.values[index(made)].overwrites);
    }
  }

  std::vector<OpId> run() {
    std::vector<ProgramOp> ops;
    std::vector<OpId> origins;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      ops.push_back(std::move(program_.ops[i]));
      origins.push_back(op_id(i));
      if (!can_be_split(ops.back())) continue;
      ProgramOp wait = wait_for(ops.back());
      ops.push_back(std::move(wait));
      origins.push_back(op_id(i));
    }
    program_.ops = std::move(ops);
    return origins;
  }

 private:
  [[nodiscard]] bool can_be_split(const ProgramOp& op) const {
    if (op.kind != ProgramOp::Kind::kCall || !is_collective(*op.call) || !group_of(*op.call)) return false;
    if (op.mutates || !op.also_makes.empty() || op.outputs.size() != 1 || !op.outputs.front()) return false;
    // What an effect stands for happens in the call before it, and a plan may put the wait between the two.
    return std::ranges::none_of(reads(op), [&](ValueId read) { return changed_.contains(read); });
  }

  // Makes a start of a collective, and returns its wait.
  ProgramOp wait_for(ProgramOp& start) {
    const ValueId result = start.outputs.front()->value;
    // Who holds the result has its memory, so that it cannot be made again.
    start.once = start.once || program_.values[index(result)].held;
    ProgramOp wait;
    wait.kind = ProgramOp::Kind::kWait;
    wait.name = start.name + "_wait";
    wait.scope = start.scope;
    wait.phase = start.phase;
    wait.once = start.once;
    wait.also_reads = reads(start);
    start.stream = kStream;
    const std::int64_t scratch_bytes = workspace_of(program_, start);
    const ValueId in_flight = add_value(program_.values[index(result)].bytes);
    program_.values[index(result)].overwrites = in_flight;
    start.outputs.front()->value = in_flight;
    if (scratch_bytes > 0) start.also_makes.push_back(add_value(scratch_bytes));
    for (const ValueId made : makes(start)) wait.also_reads.push_back(made);
    wait.also_makes = {result};
    return wait;
  }

  ValueId add_value(std::int64_t bytes) {
    program_.values.push_back({.bytes = bytes});
    return value_id(program_.values.size() - 1);
  }

  Program& program_;
  std::set<ValueId> changed_;  // by effects
};

}  // namespace

std::vector<OpId> split_collectives(Program& program) { return Split(program).run(); }

}  // namespace reprise
