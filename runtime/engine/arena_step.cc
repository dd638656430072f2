#include "runtime/engine/arena_step.h"

#include <algorithm>
#include <utility>

namespace reprise {

ArenaStep::ArenaStep(std::shared_ptr<const Program> program, std::shared_ptr<CallScripts> scripts,
                     std::shared_ptr<ArenaCounts> counts, std::int64_t alignment_bytes, Arena::Seat seat,
                     std::shared_ptr<const ArenaPlan> plan)
    : program_(std::move(program)),
      scripts_(std::move(scripts)),
      counts_(std::move(counts)),
      alignment_bytes_(alignment_bytes),
      seat_(std::move(seat)),
      plan_(std::move(plan)) {}

void ArenaStep::begin(std::size_t action, CallScripts::Kind kind) {
  kind_ = kind;
  pieces_ = plan_ == nullptr ? std::span<const ArenaPlan::Piece>() : plan_->pieces(action);
  script_ = scripts_->find(kind);
  seen_.clear();
  time_ = 0;
}

const ArenaPlan::Piece* ArenaStep::piece_of(ValueId value) const {
  const auto found = std::ranges::find(pieces_, value, &ArenaPlan::Piece::value);
  return found == pieces_.end() ? nullptr : &*found;
}

ArenaStep::Choice ArenaStep::scripted(std::int64_t bytes) {
  if (seen_.size() >= script_->requests.size() || script_->requests[seen_.size()].bytes != bytes) return {};
  const ScriptedRequest& request = script_->requests[seen_.size()];
  if (request.is_kept) return {.answer = Answer::kPlannedElsewhere};
  const ArenaPlan::Piece* piece = piece_of(request.output);
  // Outputs that have no address belong to the caller.
  if (piece == nullptr) return {.answer = request.output == kNoValue ? Answer::kUnplanned : Answer::kPlannedElsewhere};
  if (request.offset + bytes > piece->bytes) return {};  // the addresses were made for an older script
  return {Answer::kOffset, piece->offset + request.offset};
}

// Without a script: the first output of this size that has not been asked for, and else the workspace.
ArenaStep::Choice ArenaStep::guessed(std::int64_t bytes) {
  for (const ArenaPlan::Piece& piece : pieces_) {
    if (piece.value == kNoValue) {
      const std::int64_t begin = seat_.offset + piece.offset;
      const auto free = seat_.block->free_offset(begin, begin + piece.bytes, bytes, alignment_bytes_);
      if (free) return {Answer::kOffset, *free - seat_.offset};
    } else if (piece.bytes == bytes &&
               seat_.block->free_offset(seat_.offset + piece.offset, seat_.offset + piece.offset + bytes, bytes,
                                        alignment_bytes_)) {
      return {Answer::kOffset, piece.offset};
    }
  }
  return {};
}

void* ArenaStep::take(std::int64_t bytes) {
  if (bytes == 0 || is_closed_ || plan_ == nullptr) return nullptr;
  const Choice choice = script_ == nullptr ? guessed(bytes) : scripted(bytes);
  void* data = choice.answer == Answer::kOffset ? seat_.block->take(seat_.offset + choice.offset, bytes) : nullptr;
  if (data == nullptr) {
    if (choice.answer != Answer::kPlannedElsewhere) ++counts_->unplanned;
    return nullptr;
  }
  ++counts_->served;
  seen_.push_back({.data = data, .bytes = bytes, .begin = time_++, .in_arena = true});
  return data;
}

void ArenaStep::was_served(void* data, std::int64_t bytes) {
  if (bytes > 0 && !is_closed_) seen_.push_back({.data = data, .bytes = bytes, .begin = time_++});
}

void ArenaStep::will_be_freed(void* data) {
  const auto found =
      std::find_if(seen_.rbegin(), seen_.rend(), [&](const SeenRequest& request) { return request.data == data; });
  if (found != seen_.rend() && !found->end) found->end = time_++;
}

bool ArenaStep::was_different() const {
  if (script_ == nullptr || seen_.size() != script_->requests.size()) return true;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const ScriptedRequest& expected = script_->requests[i];
    const bool is_elsewhere = seen_[i].output != kNoValue && seen_[i].output != expected.output;
    if (seen_[i].bytes != expected.bytes || is_elsewhere) return true;
  }
  return false;
}

void ArenaStep::pin() {
  for (SeenRequest& request : seen_) {
    if (!request.in_arena || request.end || request.output != kNoValue) continue;
    if (seat_.block->is_live(request.data)) {
      ++counts_->kept;
      is_closed_ = true;
    } else {
      request.end = time_++;  // another thread has freed it
    }
  }
}

void ArenaStep::end(std::span<const std::pair<ValueId, const void*>> made) {
  if (is_closed_) return;
  bool has_all = true;
  for (const auto& [value, data] : made) {
    const auto found = std::ranges::find_if(
        seen_, [at = data](const SeenRequest& request) { return request.data == at && !request.end; });
    if (found != seen_.end()) found->output = value;
    has_all = has_all && (found != seen_.end() || piece_of(value) == nullptr);
  }
  pin();
  if (!is_closed_ && !was_different()) return;
  // A second copy of an output looks like workspace, so such a run teaches only if nothing else has.
  if (scripts_->is_settled(kind_) || (script_ != nullptr && !has_all)) return;
  scripts_->learn(kind_, make_script(seen_, alignment_bytes_,
                                     [this](ValueId value) { return !program_->values[index(value)].held; }));
}

}  // namespace reprise
