#include "place/dive.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace reprise::detail {

Dive::Dive(std::span<const Item> items, std::span<const std::int64_t> ceilings) : items_(items), ceilings_(ceilings) {}

void Dive::start() {
  offsets_.assign(items_.size(), 0);
  floors_.assign(items_.size(), 0);
  to_come_.assign(ceilings_.size(), 0);
  for (const Item& item : items_) {
    for (std::uint32_t s = item.first; s < item.last; ++s) to_come_[s] += item.bytes;
  }
  open_.resize(items_.size());
  std::iota(open_.begin(), open_.end(), 0U);
  open_at_ = open_;
  levels_.clear();
  raised_.clear();
  fixed_levels_ = 0;
  lowest_offset_ = 0;
}

bool Dive::run(std::span<const std::uint32_t> ranks, Limits limits) {
  start();
  for (std::size_t s = 0; s < ceilings_.size(); ++s) {
    if (to_come_[s] > ceilings_[s]) return false;
  }
  if (open_.empty()) return true;
  const std::size_t most_work = work_ + limits.work;
  push_level(ranks);
  for (std::size_t nodes = 0; nodes < limits.nodes && work_ < most_work;) {
    if (levels_.back().next == levels_.back().count) {
      levels_.pop_back();
      if (levels_.size() <= fixed_levels_) return false;
      take_back(levels_.back());
      continue;
    }
    Level& level = levels_.back();
    ++nodes;
    if (!put(level.candidates[level.next++])) {
      take_back(level);
    } else if (open_.empty()) {
      return true;
    } else {
      push_level(ranks);
    }
  }
  return false;
}

void Dive::push_level(std::span<const std::uint32_t> ranks) {
  if (raised_.size() > kMaxUndo) {
    raised_.clear();
    fixed_levels_ = levels_.size();
  }
  std::int64_t lowest_end = std::numeric_limits<std::int64_t>::max();
  for (const std::uint32_t i : open_) {
    lowest_end = std::min(lowest_end, std::max(floors_[i], lowest_offset_) + items_[i].bytes);
  }
  Level level{.candidates = {}, .raised_begin = raised_.size(), .lowest_offset = lowest_offset_};
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    const std::int64_t floor_a = std::max(floors_[a], lowest_offset_);
    const std::int64_t floor_b = std::max(floors_[b], lowest_offset_);
    return floor_a != floor_b ? floor_a < floor_b : ranks[a] < ranks[b];
  };
  for (const std::uint32_t i : open_) {
    if (std::max(floors_[i], lowest_offset_) >= lowest_end) continue;
    if (level.count == kBranches && !before(i, level.candidates[kBranches - 1])) continue;
    std::size_t at = level.count < kBranches ? level.count++ : kBranches - 1;
    for (; at > 0 && before(i, level.candidates[at - 1]); --at) level.candidates[at] = level.candidates[at - 1];
    level.candidates[at] = i;
  }
  work_ += 2 * open_.size();
  levels_.push_back(level);
}

// Whether every section of the item can still take what is to come.
bool Dive::put(std::uint32_t item) {
  const Item& placed = items_[item];
  const std::uint32_t at = open_at_[item];
  open_at_[open_.back()] = at;
  open_[at] = open_.back();
  open_.pop_back();
  offsets_[item] = lowest_offset_ = std::max(floors_[item], lowest_offset_);
  const std::int64_t top = offsets_[item] + placed.bytes;
  for (const std::uint32_t i : open_) {
    if (floors_[i] >= top || !items_[i].meets(placed)) continue;
    raised_.push_back({.item = i, .floor = floors_[i]});
    floors_[i] = top;
  }
  bool fits = true;
  for (std::uint32_t s = placed.first; s < placed.last; ++s) {
    to_come_[s] -= placed.bytes;
    fits &= top + to_come_[s] <= ceilings_[s];
  }
  work_ += open_.size() + (placed.last - placed.first);
  return fits;
}

// The last candidate that was put.
void Dive::take_back(const Level& level) {
  const std::uint32_t item = level.candidates[level.next - 1];
  for (; raised_.size() > level.raised_begin; raised_.pop_back()) floors_[raised_.back().item] = raised_.back().floor;
  for (std::uint32_t s = items_[item].first; s < items_[item].last; ++s) to_come_[s] += items_[item].bytes;
  open_at_[item] = static_cast<std::uint32_t>(open_.size());
  open_.push_back(item);
  lowest_offset_ = level.lowest_offset;
}

}  // namespace reprise::detail
