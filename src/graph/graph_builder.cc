#include "reprise/graph_builder.h"

#include <algorithm>
#include <utility>

#include "reprise/error.h"

namespace reprise {
namespace {

constexpr std::size_t kMaxOps = 4'000'000;
constexpr std::size_t kMaxValues = 16'000'000;

std::string name_of(const OpSpec& op, std::size_t i) { return "op " + std::to_string(i) + " '" + op.name + "'"; }

std::string name_of(ValueId value) { return "value " + std::to_string(index(value)); }

// The order of phases: forward ops, one caller's op, backward ops; or forward ops alone.
OpId find_caller(const std::vector<OpSpec>& ops) {
  OpId caller = kNoOp;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool after_caller = caller != kNoOp;
    if (ops[i].phase == Phase::kCaller) {
      if (after_caller) throw InputError(name_of(ops[i], i) + ": a second caller's op; a step has only one");
      caller = op_id(i);
    } else if (after_caller != (ops[i].phase == Phase::kBackward)) {
      throw InputError(name_of(ops[i], i) + (after_caller ? ": a forward op after the caller's op"
                                                          : ": a backward op before the caller's op"));
    }
  }
  return caller;
}

}  // namespace

GraphBuilder::GraphBuilder(std::string name) { graph_.name_ = std::move(name); }

ScopeId GraphBuilder::scope(std::string path) {
  graph_.scope_names_.push_back(std::move(path));
  return scope_id(graph_.scope_names_.size() - 1);
}

ValueId GraphBuilder::add_value(std::int64_t bytes, Residence residence) {
  costs_.value_bytes.push_back(bytes);
  graph_.residence_.push_back(residence);
  graph_.held_.push_back(0);
  graph_.is_output_.push_back(0);
  graph_.producer_.push_back(kNoOp);
  graph_.overwrites_.push_back(kNoValue);
  return value_id(graph_.num_values() - 1);
}

ValueId GraphBuilder::value(std::int64_t bytes) { return add_value(bytes, Residence::kPlanned); }
ValueId GraphBuilder::arriving(std::int64_t bytes) { return add_value(bytes, Residence::kArriving); }
ValueId GraphBuilder::resident(std::int64_t bytes) { return add_value(bytes, Residence::kResident); }

OpId GraphBuilder::op(OpSpec spec) {
  specs_.push_back(std::move(spec));
  return op_id(specs_.size() - 1);
}

bool GraphBuilder::known(ValueId value) const { return index(value) < graph_.num_values(); }

void GraphBuilder::check_known(ValueId value, const char* list) const {
  if (!known(value)) throw InputError(std::string(list) + ": names unknown " + name_of(value));
}

void GraphBuilder::hold(ValueId value) {
  check_known(value, "held");
  graph_.held_[index(value)] = 1;
}

void GraphBuilder::output(ValueId value) {
  check_known(value, "outputs");
  if (graph_.is_output(value)) throw InputError("outputs names " + name_of(value) + " twice");
  graph_.is_output_[index(value)] = 1;
}

void GraphBuilder::overwrite(ValueId new_value, ValueId old_value) {
  check_known(new_value, "overwrites");
  check_known(old_value, "overwrites");
  if (graph_.overwrites(new_value) != kNoValue) throw InputError(name_of(new_value) + " overwrites two values");
  graph_.overwrites_[index(new_value)] = old_value;
}

void GraphBuilder::check_counts() const {
  if (specs_.size() > kMaxOps) throw InputError("more than 4,000,000 ops");
  if (graph_.num_values() > kMaxValues) throw InputError("more than 16,000,000 values");
}

// Gives every output its producer, and checks that ops read only what exists by then.
void GraphBuilder::connect() {
  std::vector<std::uint32_t> seen(graph_.num_values(), 0);  // last op + 1 that named the value as input
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    for (const ValueId v : specs_[i].inputs) {
      if (!known(v)) throw InputError(name_of(specs_[i], i) + ": names unknown " + name_of(v));
      if (std::exchange(seen[index(v)], static_cast<std::uint32_t>(i + 1)) == i + 1) {
        throw InputError(name_of(specs_[i], i) + ": reads " + name_of(v) + " twice; name it once");
      }
      if (graph_.residence(v) == Residence::kPlanned && graph_.producer(v) == kNoOp) {
        throw InputError(name_of(specs_[i], i) + ": reads " + name_of(v) +
                         " before an op makes it; list ops in execution order");
      }
    }
    for (const ValueId v : specs_[i].outputs) {
      if (!known(v)) throw InputError(name_of(specs_[i], i) + ": names unknown " + name_of(v));
      if (graph_.residence(v) != Residence::kPlanned) {
        throw InputError(name_of(specs_[i], i) + ": makes " + name_of(v) + ", which exists from the start");
      }
      if (graph_.producer(v) != kNoOp) {
        throw InputError(name_of(specs_[i], i) + ": makes " + name_of(v) + ", which " +
                         name_of(specs_[index(graph_.producer(v))], index(graph_.producer(v))) + " makes already");
      }
      graph_.producer_[index(v)] = op_id(i);
    }
  }
}

void GraphBuilder::check_produced() const {
  for (std::size_t i = 0; i < graph_.num_values(); ++i) {
    const ValueId v = value_id(i);
    if (graph_.residence(v) == Residence::kPlanned && graph_.producer(v) == kNoOp) {
      throw InputError(name_of(v) + ": no op makes it, and it is neither resident nor arriving");
    }
  }
}

// A value in memory that the step does not own (resident or held) may be written over only on the way to new contents
// of that memory: one chain of versions, the last of which is a step output.
void GraphBuilder::check_overwrites() const {
  std::vector<std::uint8_t> in_pinned_memory(graph_.num_values(), 0);
  std::vector<std::uint8_t> overwritten(graph_.num_values(), 0);
  for (std::size_t i = 0; i < graph_.num_values(); ++i) in_pinned_memory[i] = graph_.pinned(value_id(i)) ? 1 : 0;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    for (const ValueId v : specs_[i].outputs) {
      const ValueId old = graph_.overwrites(v);
      if (old == kNoValue) continue;
      check_overwrite(i, v, old);
      if (in_pinned_memory[index(old)] == 0) continue;
      if (overwritten[index(old)] != 0)
        throw InputError(name_of(old) + ": two values overwrite it, but the step does not own it");
      in_pinned_memory[index(v)] = overwritten[index(old)] = 1;
    }
  }
  for (std::size_t i = 0; i < graph_.num_values(); ++i) {
    const ValueId v = value_id(i);
    const ValueId old = graph_.overwrites(v);
    if (old != kNoValue && graph_.producer(v) == kNoOp)
      throw InputError(name_of(v) + ": overwrites, but no op makes it");
    if (old != kNoValue && in_pinned_memory[i] != 0 && overwritten[i] == 0 && !graph_.is_output(v)) {
      throw InputError(name_of(v) + ": last contents of resident or held memory, so it must be a step output");
    }
  }
}

void GraphBuilder::check_overwrite(std::size_t op, ValueId new_value, ValueId old_value) const {
  const OpSpec& spec = specs_[op];
  const std::string what = name_of(spec, op) + ": " + name_of(new_value) + " overwrites " + name_of(old_value);
  if (std::ranges::find(spec.inputs, old_value) == spec.inputs.end()) {
    throw InputError(what + ", which is not an input of the op");
  }
  for (const ValueId other : spec.outputs) {
    if (other != new_value && graph_.overwrites(other) == old_value) {
      throw InputError(what + ", and so does " + name_of(other));
    }
  }
}

// Finds the wait of every start, and checks both.
void GraphBuilder::check_streams() {
  graph_.partner_.assign(specs_.size(), kNoOp);
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].stream == 0) continue;
    if (specs_[i].stream > graph_.num_communicators_ + 1) {
      throw InputError(name_of(specs_[i], i) + ": stream " + std::to_string(specs_[i].stream) + " before stream " +
                       std::to_string(graph_.num_communicators_ + 1) +
                       "; number communicators in the order of their first starts");
    }
    graph_.num_communicators_ = std::max(graph_.num_communicators_, specs_[i].stream);
    check_start(i);
  }
  if (graph_.num_communicators_ == 0) return;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    for (const ValueId v : specs_[i].inputs) {
      const OpId start = graph_.producer(v);
      if (start == kNoOp || specs_[index(start)].stream == 0 || graph_.partner_[i] == start) continue;
      check_wait(i, start);
      graph_.partner_[i] = start;
      graph_.partner_[index(start)] = op_id(i);
    }
  }
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].stream != 0 && graph_.partner_[i] == kNoOp) {
      throw InputError(name_of(specs_[i], i) + ": a start without a wait");
    }
  }
}

void GraphBuilder::check_start(std::size_t op) const {
  const OpSpec& spec = specs_[op];
  if (spec.phase == Phase::kCaller) throw InputError(name_of(spec, op) + ": the caller's op has stream 0");
  if (graph_.caller_op_ == kNoOp) throw InputError(name_of(spec, op) + ": a forward-only graph has no communicators");
  for (const ValueId v : spec.outputs) {
    const char* wrong = graph_.held(v)                     ? ", which the caller holds"
                        : graph_.is_output(v)              ? ", which is a step output"
                        : graph_.overwrites(v) != kNoValue ? ", which overwrites another value"
                                                           : nullptr;
    if (wrong != nullptr) throw InputError(name_of(spec, op) + ": a start makes " + name_of(v) + wrong);
  }
}

void GraphBuilder::check_wait(std::size_t op, OpId start) const {
  const OpSpec& spec = specs_[op];
  const OpSpec& started = specs_[index(start)];
  const auto refuse = [&](const std::string& why) {
    throw InputError(name_of(spec, op) + ": reads what " + name_of(started, index(start)) + " has in flight, " + why);
  };
  if (graph_.partner_[index(start)] != kNoOp) refuse("which has another wait");
  if (graph_.partner_[op] != kNoOp) refuse("and that of another start");
  if (spec.stream != 0) refuse("but is a start itself");
  if (spec.phase != started.phase || spec.once != started.once) refuse("but differs from it in phase or once");
  for (const auto* read : {&started.inputs, &started.outputs}) {
    for (const ValueId v : *read) {
      if (std::ranges::find(spec.inputs, v) == spec.inputs.end()) refuse("but not its " + name_of(v));
    }
  }
  if (spec.inputs.size() != started.inputs.size() + started.outputs.size()) refuse("and something else");
  const bool makes_next = spec.outputs.size() == 1 && graph_.overwrites(spec.outputs[0]) != kNoValue &&
                          graph_.producer(graph_.overwrites(spec.outputs[0])) == start;
  if (!makes_next) refuse("but does not make one value over it");
  if (graph_.held(spec.outputs[0]) && !spec.once) refuse("and makes a value that the caller holds, so it must be once");
}

void GraphBuilder::freeze() {
  Graph& g = graph_;
  std::vector<std::uint32_t> readers(g.num_values() + 1, 0);
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    OpSpec& spec = specs_[i];
    if (spec.scope != kNoScope && index(spec.scope) >= g.scope_names_.size()) {
      throw InputError(name_of(spec, i) + ": unknown scope " + std::to_string(index(spec.scope)));
    }
    g.op_name_.push_back(std::move(spec.name));
    g.scope_.push_back(spec.scope);
    g.phase_.push_back(spec.phase);
    costs_.time_ns.push_back(spec.time_ns);
    costs_.workspace_bytes.push_back(spec.workspace_bytes);
    g.once_.push_back(spec.once || spec.phase == Phase::kCaller ? 1 : 0);
    g.stream_.push_back(spec.stream);
    g.backward_reads_.push_back(spec.backward_reads);
    g.inputs_.items.insert(g.inputs_.items.end(), spec.inputs.begin(), spec.inputs.end());
    g.inputs_.begin.push_back(static_cast<std::uint32_t>(g.inputs_.items.size()));
    g.outputs_.items.insert(g.outputs_.items.end(), spec.outputs.begin(), spec.outputs.end());
    g.outputs_.begin.push_back(static_cast<std::uint32_t>(g.outputs_.items.size()));
    for (const ValueId v : spec.inputs) ++readers[index(v) + 1];
  }
  for (std::size_t v = 0; v < g.num_values(); ++v) readers[v + 1] += readers[v];
  g.readers_.begin = readers;
  g.readers_.items.resize(readers.back());
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    for (const ValueId v : specs_[i].inputs) g.readers_.items[readers[index(v)]++] = op_id(i);
  }
  for (std::size_t v = 0; v < g.num_values(); ++v) {
    if (g.is_output(value_id(v))) g.step_outputs_.push_back(value_id(v));
  }
}

CostedGraph GraphBuilder::build() {
  check_counts();
  graph_.caller_op_ = find_caller(specs_);
  connect();
  check_produced();
  check_overwrites();
  check_streams();
  freeze();
  check_costs(graph_, costs_);
  return {.graph = std::move(graph_), .costs = std::move(costs_)};
}

}  // namespace reprise
