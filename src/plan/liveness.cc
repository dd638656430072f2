// One scan backwards finds what each run may let go; one scan forwards writes the plan. Example, `relu_` overwriting
// `y` (runs: conv, relu_, loss):
//
//   backwards: loss needs z; relu_ makes z and needs y, which nothing needs later: in place; conv makes y, needs x
//   forwards:  c0 (x dies here: f0)  c1! (y dies into z)  c2  f2
//
// O(reads of all runs). Tested by tests/unit/plan/liveness_test.cc and, against all placements, tests/oracle.
#include "plan/liveness.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace reprise::detail {
namespace {

class Placer {
 public:
  Placer(const Graph& graph, std::span<const OpId> runs) : graph_(graph), runs_(runs) {}

  Plan place() {
    find_deaths();
    write();
    return std::move(plan_);
  }

 private:
  void find_deaths() {
    needed_.assign(graph_.num_values(), 0);
    for (const ValueId v : graph_.step_outputs()) needed_[index(v)] = 1;
    deaths_begin_.assign(runs_.size() + 1, 0);
    in_place_.assign(runs_.size(), 0);
    for (std::size_t i = runs_.size(); i-- > 0;) visit(i);
  }

  void visit(std::size_t i) {
    const OpId op = runs_[i];
    in_place_[i] = overwrites_the_dead(op) ? 1 : 0;
    for (const ValueId v : graph_.outputs(op)) {
      if (needed_[index(v)] == 0) deaths_.push_back(v);
    }
    for (const ValueId v : graph_.inputs(op)) {
      if (needed_[index(v)] == 0) deaths_.push_back(v);
    }
    deaths_begin_[i] = deaths_.size();
    for (const ValueId v : graph_.outputs(op)) needed_[index(v)] = 0;
    for (const ValueId v : graph_.inputs(op)) needed_[index(v)] = 1;
  }

  // While scanning backwards: whether nothing that the op may overwrite is read again.
  [[nodiscard]] bool overwrites_the_dead(OpId op) const {
    bool any = false;
    for (const ValueId v : graph_.outputs(op)) {
      const ValueId old = graph_.overwrites(v);
      if (old == kNoValue) continue;
      if (needed_[index(old)] != 0) return false;
      any = true;
    }
    return any;
  }

  // While scanning forwards: a value in memory that the step does not own stays live, so a rerun makes a second copy of
  // it.
  [[nodiscard]] bool is_remade_while_live(OpId op) const {
    const auto outputs = graph_.outputs(op);
    return std::ranges::any_of(outputs,
                               [&](ValueId v) { return graph_.overwrites(v) != kNoValue && live_[index(v)] != 0; });
  }

  void write() {
    live_.assign(graph_.num_values(), 0);
    pinned_.assign(graph_.num_values(), 0);
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      const ValueId v = value_id(i);
      if (graph_.residence(v) == Residence::kPlanned) continue;
      live_[i] = 1;
      pinned_[i] = graph_.pinned(v) ? 1 : 0;
      if (needed_[i] == 0) free(v);
    }
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      run(runs_[i], in_place_[i] != 0 && !is_remade_while_live(runs_[i]));
      // Deaths were found backwards: those of run i lie just before those of run i - 1.
      for (std::size_t d = deaths_begin_[i]; d-- > deaths_begin_[i + 1];) free(deaths_[d]);
    }
  }

  void run(OpId op, bool in_place) {
    plan_.actions.push_back(Action::compute(op, in_place));
    for (const ValueId v : graph_.outputs(op)) {
      const ValueId old = graph_.overwrites(v);
      if (live_[index(v)] == 0) pinned_[index(v)] = graph_.held(v) ? 1 : 0;
      if (in_place && old != kNoValue) {
        live_[index(old)] = 0;
        pinned_[index(v)] |= pinned_[index(old)];
      }
      live_[index(v)] = 1;
    }
  }

  void free(ValueId v) {
    if (live_[index(v)] == 0 || pinned_[index(v)] != 0) return;
    live_[index(v)] = 0;
    plan_.actions.push_back(Action::free(v));
  }

  const Graph& graph_;
  std::span<const OpId> runs_;
  std::vector<std::uint8_t> needed_;  // while scanning backwards: read later, in the life at hand
  std::vector<ValueId> deaths_;
  std::vector<std::size_t> deaths_begin_;
  std::vector<std::uint8_t> in_place_;
  std::vector<std::uint8_t> live_;
  std::vector<std::uint8_t> pinned_;
  Plan plan_;
};

}  // namespace

Plan place_frees(const Graph& graph, std::span<const OpId> runs) { return Placer(graph, runs).place(); }

}  // namespace reprise::detail
