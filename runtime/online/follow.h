// Follows a script while the calls of a step are those of its log, and keeps the log of a step that has no script.
//
// Problem: the rule of evict.h knows only the past, and so it takes away what is read soon. Many loops that cannot be
// captured do the same calls in most steps nevertheless.
//
// Idea: log the calls of one step, plan them with the core, and when a step begins like a logged one, do what the plan
// says before and after each call. Orders are advice: whatever a call reads is restored if it is absent, and whatever
// the allocator asks for is taken away, script or not. So bits and budget do not depend on the comparison of calls,
// which only says whether the advice still fits.
//
// A call agrees with the logged one if the operator, the whole numbers among its arguments, the shapes of its tensors
// and the values of this step that it reads are the same. Floating-point arguments may differ: a learning rate is not
// another step. At the first call that does not agree, another script that agrees so far is followed from there on;
// what it has not got at this place may be taken away. If there is none, the script has been departed from: the rule
// decides for the rest of the step, whose log is the script's up to here and its own from here on.
//
// More memory may lie outside than when the step was logged, such as the state of an optimizer that has come meanwhile.
// Then something has to go that the script keeps. The next time, the script is followed and memory outside is measured,
// and the step is planned again. So it is after the first time that a script is followed, with the shorter times of
// both steps: in the first step of a process calls may take several times as long.
//
// What a script keeps stays when the program drops it, because a call that is made again may read it.
//
// Complexity: a hash over the arguments of each call. Planning comes between two steps and is bounded in time; after
// scripts that nobody followed to the end, the next is planned 1, 2, 4, ... steps later. Tested by
// tests/runtime/online_follow_test.cc.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/online/operator_card.h"
#include "runtime/online/restore.h"
#include "runtime/online/script.h"
#include "runtime/online/values.h"

namespace reprise::online {

class Follower {
 public:
  struct Counts {
    std::int64_t steps = 0;                // that ended
    std::int64_t followed_steps = 0;       // with a script, to the end
    std::int64_t departures = 0;           // steps that began with a script and did something else
    std::int64_t unplanned_evictions = 0;  // of what a script wanted to keep
    double planning_seconds = 0;
  };

  Follower(Table& table, Restorer& restorer, c10::Device device, std::int64_t budget_bytes, double planning_seconds)
      : table_(table),
        restorer_(restorer),
        device_(device),
        budget_bytes_(budget_bytes),
        planning_seconds_(planning_seconds) {
    const Table::Lock lock(table_);
    table_.begin_step();
    taken_before_bytes_ = table_.taken_bytes();
    if (planning_seconds > 0) state_ = State::kLogging;
  }

  struct Place {
    std::size_t number = 0;    // of a call in its step
    bool is_measured = false;  // begins() has to be called
  };
  // A call comes. Does what the script says before it.
  Place before(const OperatorCard& card, const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  // All that it reads is there.
  void begins(std::size_t number, std::int64_t allocated_bytes);
  // With the table's lock: it was made, and made these values.
  void after(std::size_t number, std::int64_t cost_ns, std::span<Value* const> made);
  // A backward pass has ended that does not keep its graph.
  void end_step();

  // Scripts of another budget are of no use.
  void set_budget(std::int64_t bytes);
  void count_eviction(const Value& value) { counts_.unplanned_evictions += value.kept ? 1 : 0; }

  [[nodiscard]] std::size_t next_call() const { return next_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::size_t scripts() const { return scripts_.size(); }
  // The script with a plan that was planned or followed last; null if there is none.
  [[nodiscard]] std::shared_ptr<const Script> latest_plan() const;
  // The latest step of which all calls are known. Before there is one, what is known of this step, as if the rest of it
  // would read all that the program holds, the latest first.
  [[nodiscard]] StepLog known_log() const;

 private:
  enum class State : std::uint8_t { kIdle, kLogging, kFollowing };
  static constexpr std::size_t kMostScripts = 8;
  static constexpr std::size_t kMostCalls = 200'000;
  // If so many calls of the first step have taken next to nothing of the budget, the step is not going to need it all.
  static constexpr std::size_t kCallsToJudge = 256;
  static constexpr int kStepsToLog = 32;  // after one that needed memory taken away

  struct Call {
    std::uint64_t signature = 0;
    c10::SmallVector<std::uint32_t, 4> reads;
  };
  [[nodiscard]] Call look_at(const OperatorCard& card, std::span<const c10::IValue> arguments) const;
  void log(Call call, const c10::OperatorHandle& op);
  void stop_logging();
  [[nodiscard]] bool may_plan() const;
  [[nodiscard]] bool is_measuring() const;
  [[nodiscard]] bool agrees(std::size_t number, std::uint64_t signature) const;
  void change_script(std::size_t number, std::uint64_t signature);
  void align_with_script(std::size_t number);
  void depart(std::size_t number);
  void obey(const Script& script, std::size_t number);
  void make_again(const Script& script, const Order& order);
  void copy(std::uint32_t id);
  void free(const Order& order);
  void plan(StepLog log, bool is_revised);
  void begin_step();

  Table& table_;
  Restorer& restorer_;
  c10::Device device_;
  std::int64_t budget_bytes_;
  double planning_seconds_;
  State state_ = State::kIdle;
  std::size_t next_ = 0;                                // the number of the next call
  std::vector<std::shared_ptr<const Script>> scripts_;  // the latest followed last
  std::shared_ptr<const Script> script_;
  std::shared_ptr<const Script> stale_;  // was followed, and less memory lay outside when it was logged
  StepLog log_;
  std::int64_t taken_before_bytes_ = 0;  // when the step began
  std::int64_t unplanned_before_ = 0;    // as well
  std::size_t measured_ = 0;             // the number after that of the call that is being measured
  int in_vain_ = 0;                      // scripts that were planned since one was followed to the end
  int since_planned_ = 0;                // steps
  int since_pressure_ = kStepsToLog;
  Counts counts_;
};

}  // namespace reprise::online
