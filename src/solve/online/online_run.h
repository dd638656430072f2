// Dynamic tensor rematerialization, simulated: the ops of a step run in the captured order, and when memory is short
// results are taken away, to be computed again when somebody reads them. Nothing is known of what comes later.
//
// Taken away (*evicted*) is the value with the least
//
//   h = (own cost + cost of the absent components next to it) / (bytes * time since the program last read it)
//
// Example: three layers x -> a -> b -> c of 10 ns and 100 bytes each, and a budget of 330 bytes, of which x, which
// stays, takes 100. To make c, a or b has to go; b is being read, so a is evicted. Backward reads c, b and then a,
// which is computed again from x when b and c have gone.
//
// What the program can no longer read is absent too: superseded versions, and temporaries after their last read. They
// are part of components, because computing something again may need them. Brought back for that they are *ghosts*:
// nobody holds them. With `ghosts_first`, ghosts go before anything else; as published, they are like any other value.
// Only reads by the program count as use.
//
// A value is brought back by its op, which first brings back what it lacks: with an explicit stack, because chains are
// as deep as networks. Inputs of all runs on the stack are locked. An evicted value is found by a scan of all that are
// there, O(values); walks over its neighbours are left out where its own cost alone is beaten.
//
// Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021. Tested by tests/unit/solve/online and, against a
// version without union-find and without bounds, tests/oracle/online_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "solve/online/components.h"
#include "solve/online/online_view.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {

struct OnlineOptions {
  std::int64_t budget_bytes = 0;
  OnlineRules rules{};
};

struct OnlineCourse {
  std::vector<OpId> runs;         // first runs in the captured order, with runs again between them
  std::int64_t peak_bytes = 0;    // as the run counts it; the plan frees earlier, so its own may be lower
  std::int64_t recompute_ns = 0;  // of runs again
  bool ghosts_mattered = false;   // whether ghosts_first evicted anything that h alone would not have
};

class OnlineRun {
 public:
  OnlineRun(const OnlineView& step, const OnlineOptions& options);

  // Nothing if there is nothing left to evict, or if more runs are made than are worth looking at.
  [[nodiscard]] std::optional<OnlineCourse> course();

 private:
  enum class State : std::uint8_t { kNotYet, kPresent, kAbsent, kGone };
  struct Victim {  // the smaller one goes
    double h = 0;
    ValueId value = kNoValue;
    friend bool operator<(const Victim& a, const Victim& b) { return a.h != b.h ? a.h < b.h : a.value < b.value; }
  };

  void begin();
  [[nodiscard]] bool run_with_inputs(OpId op);
  [[nodiscard]] bool run(OpId op);
  [[nodiscard]] bool bring_back_outputs();
  void push(OpId op);
  [[nodiscard]] OpId first_missing(OpId op) const;

  [[nodiscard]] bool runs_in_place(OpId op) const;
  [[nodiscard]] bool make_room(std::int64_t bytes);
  [[nodiscard]] ValueId victim();
  void compare(ValueId v, Victim& best);

  void arrive(ValueId v);
  void give_back(ValueId v);
  void let_go(ValueId v);
  void end_lives(OpId op);

  [[nodiscard]] bool is_ghost(ValueId v) const { return step_.wanted_until[v] <= now_; }

  const OnlineView& step_;
  const Graph& graph_;
  OnlineOptions options_;
  std::size_t most_runs_;
  OnlineCourse course_;
  std::uint32_t now_ = 0;  // op of the program
  std::int64_t clock_ns_ = 0;
  std::int64_t live_bytes_ = 0;
  ByOp<std::uint8_t> ran_;
  ByValue<State> state_;
  ByValue<std::uint8_t> pinned_;  // lies in memory that is never given back
  ByValue<std::uint32_t> locks_;
  ByValue<std::int64_t> read_ns_;  // when the program last read or made it
  ByValue<double> density_;        // own cost by bytes
  ByValue<Components::Node> node_;
  ByValue<std::uint32_t> place_;  // in pool_
  std::vector<ValueId> pool_;     // what may be evicted, unless it is locked
  Components components_;
  std::uint64_t round_ = 0;
  std::vector<OpId> stack_;
};

// The courses at a budget: one, or another one without ghosts first if that is different. Neither is always the better
// one: a ghost may be what the next value is computed from.
[[nodiscard]] std::vector<OnlineCourse> online_courses(const OnlineView& step, const OnlineOptions& options);

}  // namespace reprise::detail
