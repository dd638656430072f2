// One step in an arena: tells the allocator where the requests of each call go, and learns from what calls ask for.
//
// What is not of the plan goes to PyTorch's allocator and is counted: requests that differ from the call's script, and
// requests whose memory is still in use. If a call keeps memory that it neither returns nor frees, that memory stays
// live, and from there on the whole step goes to PyTorch's allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/device/arena.h"
#include "runtime/engine/arena_plan.h"
#include "runtime/engine/call_script.h"
#include "runtime/program/program.h"

namespace reprise {

struct ArenaCounts {
  std::int64_t served = 0;     // requests that got the memory planned for them
  std::int64_t unplanned = 0;  // requests that were not of the plan, or whose memory was in use
  std::int64_t kept = 0;       // blocks that a call kept
};

class ArenaStep final : public RequestGuide {
 public:
  // Only watches the calls, if there is no seat.
  ArenaStep(std::shared_ptr<const Program> program, std::shared_ptr<CallScripts> scripts,
            std::shared_ptr<ArenaCounts> counts, std::int64_t alignment_bytes, Arena::Seat seat = {},
            std::shared_ptr<const ArenaPlan> plan = nullptr);

  // Around a call. `made` says where the values lie that the op has made.
  void begin(std::size_t action, CallScripts::Kind kind);
  void end(std::span<const std::pair<ValueId, const void*>> made);
  // Serves nothing any more.
  void close() { is_closed_ = true; }

  [[nodiscard]] void* take(std::int64_t bytes) override;
  void was_served(void* data, std::int64_t bytes) override;
  void will_be_freed(void* data) override;

 private:
  // Whether the call asked for something else than its script says.
  [[nodiscard]] bool was_different() const;
  // Finds memory that the call keeps.
  void pin();

  enum class Answer : std::uint8_t { kOffset, kPlannedElsewhere, kUnplanned };
  struct Choice {
    Answer answer = Answer::kUnplanned;
    std::int64_t offset = 0;  // in the plan's part of the block
  };
  [[nodiscard]] Choice scripted(std::int64_t bytes);
  [[nodiscard]] Choice guessed(std::int64_t bytes);
  [[nodiscard]] const ArenaPlan::Piece* piece_of(ValueId value) const;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<CallScripts> scripts_;
  std::shared_ptr<ArenaCounts> counts_;
  std::int64_t alignment_bytes_;
  Arena::Seat seat_;
  std::shared_ptr<const ArenaPlan> plan_;
  bool is_closed_ = false;
  // What belongs to the call that runs.
  CallScripts::Kind kind_{};
  std::span<const ArenaPlan::Piece> pieces_;
  const CallScript* script_ = nullptr;
  std::vector<SeenRequest> seen_;
  std::size_t time_ = 0;
};

}  // namespace reprise
