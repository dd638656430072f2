#include "runtime/program/passes/split_collectives.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/program/collectives.h"

namespace reprise {
namespace {

bool can_be_split(const ProgramOp& op) {
  return op.kind == ProgramOp::Kind::kCall && is_collective(*op.call) && group_of(*op.call) && !op.mutates &&
         op.also_makes.empty() && op.outputs.size() == 1 && op.outputs.front();
}

class Split {
 public:
  explicit Split(Program& program) : program_(program) {}

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
  // Makes a start of a collective, and returns its wait.
  ProgramOp wait_for(ProgramOp& start) {
    ProgramOp wait;
    wait.kind = ProgramOp::Kind::kWait;
    wait.name = start.name + "_wait";
    wait.scope = start.scope;
    wait.phase = start.phase;
    wait.once = start.once;
    wait.also_reads = reads(start);
    start.stream = stream_of(*group_of(*start.call));
    const std::int64_t scratch_bytes = workspace_of(program_, start);
    const ValueId result = start.outputs.front()->value;
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

  // Communicators are numbered in the order of their first starts.
  std::uint32_t stream_of(const std::string& group) {
    auto known = std::ranges::find(groups_, group);
    if (known == groups_.end()) known = groups_.insert(groups_.end(), group);
    return static_cast<std::uint32_t>(known - groups_.begin()) + 1;
  }

  Program& program_;
  std::vector<std::string> groups_;
};

}  // namespace

std::vector<OpId> split_collectives(Program& program) { return Split(program).run(); }

}  // namespace reprise
