// The two passes that every judgement of labels is made of: runs forwards, bytes backwards (evaluator.h says how).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "solve/auto/step_model.h"

namespace reprise::detail {

enum class Label : std::uint8_t { kKeep, kHold, kDiscard, kRelease, kLater };
inline constexpr std::size_t kLabels = 5;

struct Run {
  OpId op;
  bool again;
};

// Whether a value can be read, while runs are made.
enum class Presence : std::uint8_t {
  kAbsent,
  kPresent,
  kToRelease,   // present, and dropped after the turn that reads it first
  kAbsentOnce,  // absent; the next time it is made, it is dropped after the turn
};

[[nodiscard]] constexpr Presence after_forward(Label label) {
  constexpr std::array<Presence, kLabels> kStates{Presence::kPresent, Presence::kAbsent, Presence::kAbsent,
                                                  Presence::kToRelease, Presence::kAbsentOnce};
  return kStates[static_cast<std::size_t>(label)];
}

// Makes the runs of one turn after the other: whatever a backward op lacks, then the op itself.
class RunMaker {
 public:
  explicit RunMaker(const StepModel& model) : model_(model) {}

  void turn(OpId op, const ByValue<Label>& labels);

  ByValue<Presence> presence;
  std::vector<Run> runs;      // grows
  std::int64_t again_ns = 0;  // grows: time of runs again

 private:
  struct Frame {
    OpId op;
    std::uint32_t next;
  };
  void demand(OpId op, const ByValue<Label>& labels);
  void run_again(OpId op, const ByValue<Label>& labels);
  [[nodiscard]] bool read(ValueId value);

  const StepModel& model_;
  std::vector<ValueId> passing_;  // present up to the end of the turn only
  std::vector<Frame> stack_;
};

// Goes over runs from the last to the first, with the values still needed.
class RunScan {
 public:
  explicit RunScan(const StepModel& model) : model_(model) {}

  void begin_at_end();
  // Bytes at the highest instant of the run.
  std::int64_t visit(const Run& run);

  ByValue<std::uint8_t> needed;
  std::int64_t live = 0;
  std::int64_t not_riding = 0;  // grows: bytes of riders that had to be copied

 private:
  [[nodiscard]] bool runs_in_place(const Run& run) const;

  const StepModel& model_;
};

}  // namespace reprise::detail
