#include "place/dive.h"

#include <algorithm>
#include <limits>

namespace reprise::detail {
namespace {

constexpr std::int64_t kNowhere = std::numeric_limits<std::int64_t>::max();

}  // namespace

Dive::Dive(std::span<const Item> items, std::span<const std::int64_t> ceilings) : items_(items), ceilings_(ceilings) {}

void Dive::start(std::span<const std::uint32_t> ranks) {
  offsets_.assign(items_.size(), 0);
  to_come_.assign(ceilings_.size(), 0);
  open_.clear();
  open_at_.clear();
  placed_.clear();
  levels_.clear();
  raised_.clear();
  blamed_.clear();
  fixed_levels_ = 0;
  lowest_offset_ = 0;
  lowest_end_ = kNowhere;
  for (std::uint32_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    for (std::uint32_t s = item.first; s < item.last; ++s) to_come_[s] += item.bytes;
    open_.push_back(
        {.floor = 0, .bytes = item.bytes, .first = item.first, .last = item.last, .rank = ranks[i], .item = i});
    open_at_.push_back(i);
    lowest_end_ = std::min(lowest_end_, item.bytes);
  }
}

bool Dive::run(std::span<const std::uint32_t> ranks, Limits limits) {
  start(ranks);
  for (std::size_t s = 0; s < ceilings_.size(); ++s) {
    if (to_come_[s] > ceilings_[s]) return false;
  }
  if (open_.empty()) return true;
  const std::size_t most_work = work_ + limits.work;
  push_level();
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
      push_level();
    }
  }
  return false;
}

void Dive::push_level() {
  if (raised_.size() > kMaxUndo) {
    raised_.clear();
    fixed_levels_ = levels_.size();
  }
  struct Candidate {
    std::int64_t floor;
    std::uint32_t rank;
    std::uint32_t item;
    [[nodiscard]] bool before(const Candidate& other) const {
      return floor != other.floor ? floor < other.floor : rank < other.rank;
    }
  };
  std::array<Candidate, kBranches> best{};
  Level level{.candidates = {}, .raised_begin = raised_.size(), .lowest_offset = lowest_offset_};
  std::int64_t limit = lowest_end_;
  for (const Open& open : open_) {
    if (open.floor >= limit) continue;
    const Candidate candidate{.floor = std::max(open.floor, lowest_offset_), .rank = open.rank, .item = open.item};
    if (level.count == kBranches && !candidate.before(best[kBranches - 1])) continue;
    std::size_t at = level.count < kBranches ? level.count++ : kBranches - 1;
    for (; at > 0 && candidate.before(best[at - 1]); --at) best[at] = best[at - 1];
    best[at] = candidate;
    // What is above three others is none of them.
    if (level.count == kBranches) limit = std::min(limit, best[kBranches - 1].floor + 1);
  }
  for (std::size_t k = 0; k < level.count; ++k) level.candidates[k] = best[k].item;
  work_ += open_.size();
  levels_.push_back(level);
}

// Whether every section of the item can still take what is to come.
bool Dive::put(std::uint32_t item) {
  const std::uint32_t at = open_at_[item];
  const Open placed = open_[at];
  placed_.push_back(placed);
  open_at_[open_.back().item] = at;
  open_[at] = open_.back();
  open_.pop_back();
  const std::int64_t offset = std::max(placed.floor, lowest_offset_);
  const std::int64_t top = offset + placed.bytes;
  offsets_[item] = lowest_offset_ = offset;
  std::int64_t lowest_end = kNowhere;
  for (Open& open : open_) {
    if (open.first < placed.last && placed.first < open.last && open.floor < top) {
      raised_.push_back({.item = open.item, .floor = open.floor});
      open.floor = top;
    }
    lowest_end = std::min(lowest_end, std::max(open.floor, offset) + open.bytes);
  }
  lowest_end_ = lowest_end;
  bool fits = true;
  for (std::uint32_t s = placed.first; s < placed.last; ++s) {
    to_come_[s] -= placed.bytes;
    fits &= top + to_come_[s] <= ceilings_[s];
  }
  work_ += open_.size() + (placed.last - placed.first);
  if (!fits && blamed_.empty()) blame(item, top);
  return fits;
}

void Dive::blame(std::uint32_t item, std::int64_t top) {
  std::uint32_t worst = items_[item].first;
  for (std::uint32_t s = worst; s < items_[item].last; ++s) {
    if (to_come_[s] - ceilings_[s] > to_come_[worst] - ceilings_[worst]) worst = s;
  }
  for (const Open& open : open_) {
    if (open.first <= worst && worst < open.last) blamed_.push_back(open.item);
  }
  if (top > ceilings_[worst]) blamed_.push_back(item);
}

// The last candidate that was put. What has the lowest end is found by the next put: alternatives are known.
void Dive::take_back(const Level& level) {
  const std::uint32_t item = level.candidates[level.next - 1];
  for (; raised_.size() > level.raised_begin; raised_.pop_back()) {
    open_[open_at_[raised_.back().item]].floor = raised_.back().floor;
  }
  for (std::uint32_t s = items_[item].first; s < items_[item].last; ++s) to_come_[s] += items_[item].bytes;
  open_at_[item] = static_cast<std::uint32_t>(open_.size());
  open_.push_back(placed_.back());
  placed_.pop_back();
  lowest_offset_ = level.lowest_offset;
}

}  // namespace reprise::detail
