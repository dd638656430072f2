#include "runtime/program/program_check.h"

#include <algorithm>
#include <unordered_set>

#include "reprise/error.h"
#include "runtime/program/collectives.h"

namespace reprise::detail {
namespace {

using Uses = std::vector<std::optional<TensorUse>>;

class Check {
 public:
  Check(const Program& program, const std::string& source) : program_(program), source_(source) {}

  void all() {
    graph();
    find_given();
    caller();
    for (std::size_t i = 0; i < program_.ops.size(); ++i) op(i);
    given_geometry();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw InputError(source_ + ": " + what); }
  [[noreturn]] void fail_op(std::size_t i, const std::string& what) const {
    fail("op " + std::to_string(i) + " '" + program_.ops[i].name + "': " + what);
  }
  static std::string name_of(ValueId value) { return "value " + std::to_string(index(value)); }

  void graph() {
    try {
      graph_ = make_graph(program_);
    } catch (const InputError& error) {
      fail(error.what());
    }
  }

  void find_given();
  void caller() const;
  void op(std::size_t i);
  void call_op(std::size_t i) const;
  void collective(std::size_t i) const;
  void given_geometry() const;

  const Program& program_;
  const std::string& source_;
  std::optional<Graph> graph_;
  std::vector<const Geometry*> given_;  // by value, for values that come from outside
  std::unordered_set<ValueId> generator_states_;
};

// Every value that no op makes is given once: as an input or a constant, or, for a seed, by the caller.
void Check::find_given() {
  given_.resize(program_.values.size(), nullptr);
  std::vector<std::uint8_t> seen(program_.values.size(), 0);
  const auto give = [&](ValueId value, const char* as) {
    if (seen[index(value)]++ != 0) fail(std::string(as) + ": " + name_of(value) + " is given twice");
  };
  for (const auto& use : program_.inputs) {
    if (!use) continue;
    give(use->value, "inputs");
    given_[index(use->value)] = &use->geometry;
    if (program_.values[index(use->value)].residence == Residence::kPlanned) {
      fail("inputs: " + name_of(use->value) + " is neither resident nor arriving");
    }
  }
  for (const auto& [value, tensor] : program_.constants) give(value, "constants");
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const bool there = program_.values[i].residence != Residence::kPlanned;
    if (there && seen[i] == 0)
      fail(name_of(value_id(i)) + " exists from the start, but no input or constant provides it");
    if (!there && seen[i] != 0) fail(name_of(value_id(i)) + " is a constant, but not resident");
  }
  for (const auto& use : program_.seeds) {
    if (!use) continue;
    give(use->value, "seeds");
    given_[index(use->value)] = &use->geometry;
  }
}

void Check::caller() const {
  const OpId caller = program_.caller_op();
  if (caller == kNoOp) fail("no op of the kind 'caller' divides forward from backward");
  const ProgramOp& op = program_.ops[index(caller)];
  if (op.phase != Phase::kCaller) fail_op(index(caller), "the caller's op is not in the phase 'caller'");
  const std::vector<ValueId> made = makes(op);
  const std::vector<ValueId> read = reads(op);
  const std::unordered_set<ValueId> seeds(made.begin(), made.end());
  const std::unordered_set<ValueId> outputs(read.begin(), read.end());
  for (const auto& use : program_.seeds) {
    if (use && !seeds.contains(use->value)) fail("seeds: the caller's op does not make " + name_of(use->value));
  }
  for (const auto& use : program_.forward_outputs) {
    if (!use || outputs.contains(use->value)) continue;
    const OpId producer = graph_->producer(use->value);
    if (graph_->pinned(use->value) && (producer == kNoOp || index(producer) < index(caller))) continue;
    fail("forward_outputs: the caller's op does not read " + name_of(use->value) + ", so a plan may free it too early");
  }
  if (program_.forward_outputs.empty() || !program_.forward_outputs.front()) fail("forward_outputs: there is no loss");
}

// A start is a collective with one result, over which its wait makes the next version; and only its wait waits.
void Check::collective(std::size_t i) const {
  const ProgramOp& op = program_.ops[i];
  if ((op.kind == ProgramOp::Kind::kWait) != graph_->is_wait(op_id(i))) {
    fail_op(i, "only an op of the kind 'wait' reads what is in flight, and it reads nothing else");
  }
  if (op.stream == 0) return;
  const bool begins = op.kind == ProgramOp::Kind::kCall && op.call && is_collective(*op.call) && !op.first_call &&
                      !op.in_place_call && !op.mutates && op.generator_state == kNoValue;
  if (!begins) fail_op(i, "only a plain call of a collective has a stream");
  const ValueId result = graph_->overwrites(graph_->outputs(graph_->partner(op_id(i)))[0]);
  if (op.outputs.size() != 1 || !op.outputs.front() || op.outputs.front()->value != result) {
    fail_op(i, "a start has one output, over which its wait makes a value");
  }
}

void Check::op(std::size_t i) {
  const ProgramOp& op = program_.ops[i];
  collective(i);
  if (op.kind == ProgramOp::Kind::kCall) return call_op(i);
  const bool calls = op.call || op.first_call || op.in_place_call || !op.outputs.empty();
  if (calls || op.generator_state != kNoValue || op.added_seed != kNoValue || op.mutates || op.expected)
    fail_op(i, "only a call has these keys");
  const bool must_be_once = op.kind == ProgramOp::Kind::kGeneratorState || op.kind == ProgramOp::Kind::kEffect;
  if (must_be_once && !op.once) fail_op(i, "must not be repeated, but is not `once`");
  if ((op.kind == ProgramOp::Kind::kCaller) != (op.phase == Phase::kCaller)) fail_op(i, "wrong phase for its kind");
  if (op.kind == ProgramOp::Kind::kGeneratorState) {
    if (op.also_makes.size() != 1) fail_op(i, "saves one state of a generator, so it makes one value");
    generator_states_.insert(op.also_makes.front());
  }
  if (op.kind != ProgramOp::Kind::kEffect) return;
  for (const ValueId made : op.also_makes) {
    if (program_.values[index(made)].overwrites == kNoValue) fail_op(i, name_of(made) + " overwrites nothing");
  }
}

void Check::call_op(std::size_t i) const {
  const ProgramOp& op = program_.ops[i];
  if (!op.call) fail_op(i, "has no call");
  if (op.phase == Phase::kCaller) fail_op(i, "wrong phase for its kind");
  const std::vector<ValueId> list = reads(op);
  const std::unordered_set<ValueId> read(list.begin(), list.end());
  for_each_call(op, [&](const Call& call) {
    for_each_use(call, [&](const TensorUse& use) {
      const ProgramValue& value = program_.values[index(use.value)];
      // Newer contents of memory that exists already exist too: tokens and effects order them.
      const bool is_there = value.residence == Residence::kResident || value.overwrites != kNoValue;
      if (is_there || read.contains(use.value)) return;
      fail_op(i, "one of its calls reads " + name_of(use.value) + ", which `call` does not");
    });
  });
  for (const auto& output : op.outputs) {
    if (!output || program_.values[index(output->value)].overwrites == kNoValue || op.in_place_call) continue;
    fail_op(i, name_of(output->value) + " may overwrite, but there is no `in_place_call`");
  }
  if (op.mutates && (op.first_call || op.in_place_call)) fail_op(i, "a call that mutates is the same in place or not");
  for (const ValueId made : op.also_makes) {
    if (!op.mutates && program_.values[index(made)].overwrites != kNoValue) {
      fail_op(i, name_of(made) + " overwrites, but the op does not say `mutates`");
    }
  }
  if (op.generator_state != kNoValue && !generator_states_.contains(op.generator_state)) {
    fail_op(i, name_of(op.generator_state) + " is not a state of a generator");
  }
  if (op.added_seed == kNoValue && op.added_to == kNoValue) return;
  if (!read.contains(op.added_seed) || !read.contains(op.added_to)) fail_op(i, "adds a value that it does not read");
  if (op.outputs.size() != 1 || !op.outputs.front()) fail_op(i, "a sum has one output");
}

// Calls address memory from the begin of a storage; of the caller's storages they know no more than what they are
// given.
void Check::given_geometry() const {
  const auto begin = [](const Geometry& geometry) {
    return geometry.offset * static_cast<std::int64_t>(c10::elementSize(geometry.dtype));
  };
  const auto check = [&](const TensorUse& use, const std::string& where) {
    const Geometry* given = given_[index(use.value)];
    if (given == nullptr || extent_bytes(use.geometry) == 0) return;
    if (begin(use.geometry) >= begin(*given) && extent_bytes(use.geometry) <= extent_bytes(*given)) return;
    fail(where + " reads " + name_of(use.value) + " as " + to_string(use.geometry) +
         ", beyond what is given: " + to_string(*given));
  };
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const std::string where = "op " + std::to_string(i) + " '" + program_.ops[i].name + "'";
    for_each_call(program_.ops[i],
                  [&](const Call& call) { for_each_use(call, [&](const TensorUse& use) { check(use, where); }); });
  }
  for (const Uses* uses : {&program_.forward_outputs, &program_.gradients}) {
    for (const auto& use : *uses) {
      if (use) check(*use, "an output");
    }
  }
}

}  // namespace

void check_program(const StepProgram& step, const std::string& source) { Check(*step.program, source).all(); }

}  // namespace reprise::detail
