#include "runtime/session/other_backward.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "reprise/graph.h"
#include "reprise/lives.h"
#include "reprise/validate.h"

namespace reprise {
namespace {

bool alike(const ProgramValue& a, const ProgramValue& b) {
  return a.bytes == b.bytes && a.residence == b.residence && a.overwrites == b.overwrites;
}

bool same_forward(const Program& a, const Program& b) {
  const std::size_t end = index(a.caller_op());
  if (index(b.caller_op()) != end) return false;
  for (std::size_t i = 0; i < end; ++i) {
    const std::vector<ValueId> read = reads(a.ops[i]);
    const std::vector<ValueId> made = makes(a.ops[i]);
    if (a.ops[i].name != b.ops[i].name || read != reads(b.ops[i]) || made != makes(b.ops[i])) return false;
    for (const auto* values : {&read, &made}) {
      for (const ValueId value : *values) {
        if (!alike(a.values[index(value)], b.values[index(value)])) return false;
      }
    }
  }
  return true;
}

// Ops by their names. Parts of one call share a name.
using Named = std::map<std::pair<std::string, std::size_t>, OpId>;

Named by_name(const Program& program) {
  Named named;
  std::map<std::string, std::size_t> counts;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    named.emplace(std::pair(program.ops[i].name, counts[program.ops[i].name]++), op_id(i));
  }
  return named;
}

class Continuation {
 public:
  Continuation(const Program& program, const Executor& planned)
      : program_(program), planned_(planned), present_(planned.live_between()), producers_(program.values.size()) {
    present_.resize(program.values.size(), false);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      for (const ValueId value : makes(program.ops[i])) producers_[index(value)] = op_id(i);
    }
  }

  // Nothing if something would have to be done again that is done once, such as saving where a generator was.
  std::optional<std::vector<OpId>> runs() {
    const Named there = by_name(program_);
    std::vector<std::optional<OpId>> counterparts(planned_.program().ops.size());
    for (const auto& [name, op] : by_name(planned_.program())) {
      if (const auto found = there.find(name); found != there.end()) counterparts[index(op)] = found->second;
    }
    bool is_forward = true;
    for (const Action& action : planned_.actions()) {
      if (!action.computes()) continue;
      const auto op = counterparts[index(action.op())];
      if (is_forward) {
        runs_.push_back(action.op());
        is_forward = action.op() != program_.caller_op();
        if (!is_forward) note_made(action.op());
      } else if (op) {
        add(*op);
      }
    }
    if (!is_possible_) return std::nullopt;
    return std::move(runs_);
  }

 private:
  void add(OpId op) {
    const ProgramOp& added = program_.ops[index(op)];
    if (added.phase == Phase::kForward && added.kind != ProgramOp::Kind::kCall) is_possible_ = false;
    if (!is_possible_) return;
    for (const ValueId value : reads(added)) {
      if (!present_[index(value)] && producers_[index(value)]) add(*producers_[index(value)]);
    }
    runs_.push_back(op);
    note_made(op);
  }

  void note_made(OpId op) {
    for (const ValueId value : makes(program_.ops[index(op)])) present_[index(value)] = true;
  }

  const Program& program_;
  const Executor& planned_;
  std::vector<bool> present_;                   // by value
  std::vector<std::optional<OpId>> producers_;  // by value
  std::vector<OpId> runs_;
  bool is_possible_ = true;
};

}  // namespace

std::optional<Plan> with_backward_of(const Program& other, const Executor& planned) {
  if (!same_forward(planned.program(), other)) return std::nullopt;
  const Graph graph = make_graph(other);
  const auto runs = Continuation(other, planned).runs();
  if (!runs) return std::nullopt;
  Plan plan = with_shortest_lives(graph, *runs);
  if (validate(graph, plan)) return std::nullopt;
  return plan;
}

}  // namespace reprise
