#include "solve/lower_sets/sequence_bounds.h"

#include <utility>

namespace reprise::detail {

SequenceBounds::SequenceBounds(const Transitions& transitions, BoundOptions options)
    : transitions_(transitions),
      family_(transitions.family()),
      options_(std::move(options)),
      least_(least_cached_bytes(transitions, options_.budget_bytes)),
      room_(family_.size(), kUnreachable),
      rest_(family_.size(), 0),
      useful_((family_.size() + 63) / 64, 0),
      smallest_key_(useful_.size(), kUnreachable) {
  feasible_ = least_.back() != kUnreachable;
  if (!feasible_) return;
  mark_reachable();
  if (options_.memory) find_room();
  if (options_.time) find_rest();
}

bool SequenceBounds::stop() {
  stopped_ = stopped_ || (options_.should_stop && options_.should_stop());
  return stopped_;
}

void SequenceBounds::mark_reachable() {
  for (SetId set = 0; set < family_.size(); ++set) {
    if (least_[set] == kUnreachable) continue;
    useful_[set / 64] |= std::uint64_t{1} << (set % 64);
    smallest_key_[set / 64] = std::min(smallest_key_[set / 64], least_[set] - 2 * family_.bytes(set));
  }
}

void SequenceBounds::find_room() {
  room_.assign(family_.size(), -1);
  room_.back() = kUnreachable;  // nothing follows, so anything may be cached
  for (SetId to = family_.whole(); to > 0 && !stop(); --to) {
    if (room_[to] < least_[to]) {
      useful_[to / 64] &= ~(std::uint64_t{1} << (to % 64));
      continue;
    }
    const auto skip = [&](std::size_t word) { return beyond_budget(word, to); };
    transitions_.for_each_part(to, useful_, skip, [&](const Part& part) {
      part.for_each([&](SetId from) { room_[from] = std::max(room_[from], most_cached(from, to, part.cached_bytes)); });
    });
  }
}

void SequenceBounds::find_rest() {
  rest_.assign(family_.size(), kUnreachable);
  rest_.back() = 0;
  for (SetId to = family_.whole(); to > 0 && !stop(); --to) {
    if (!useful(to) || rest_[to] == kUnreachable) continue;
    const auto skip = [&](std::size_t word) { return beyond_budget(word, to); };
    transitions_.for_each_part(to, useful_, skip, [&](const Part& part) {
      part.for_each([&](SetId from) {
        if (least_[from] > most_cached(from, to, part.cached_bytes)) return;
        rest_[from] = std::min(rest_[from], rest_[to] + overhead(from, to, part.cached_time));
      });
    });
  }
}

}  // namespace reprise::detail
