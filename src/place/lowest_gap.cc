#include "place/lowest_gap.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace reprise::detail {

LowestGap::LowestGap(std::span<const Item> items)
    : items_(items), place_of_(items.size()), ends_(items.size(), 0), ranges_(items.size()) {
  std::vector<std::uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return items[i].first; });
  begins_.reserve(items.size());
  for (std::uint32_t at = 0; at < order.size(); ++at) {
    place_of_[order[at]] = at;
    begins_.push_back(items[order[at]].first);
  }
  leaves_ = std::bit_ceil(items.size() / kBlock + 1);
  tree_.assign(2 * leaves_, 0);
}

void LowestGap::put(std::uint32_t item, std::int64_t offset) {
  const std::uint32_t at = place_of_[item];
  const std::uint32_t end = ends_[at] = items_[item].last;
  ranges_[at] = {.offset = offset, .end = offset + items_[item].bytes};
  for (std::size_t node = leaves_ + at / kBlock; node > 0 && tree_[node] < end; node /= 2) tree_[node] = end;
  top_ = std::max(top_, ranges_[at].end);
}

// Below `node`, among the first `begun` in the order of the begins. `width` is how many leaves lie below the node.
void LowestGap::collect(std::size_t node, std::size_t width, const Item& item, std::size_t begun) {
  if (tree_[node] <= item.first) return;
  if (width > 1) {
    collect(2 * node, width / 2, item, begun);
    const std::size_t right_begin = ((2 * node + 1) * (width / 2) - leaves_) * kBlock;
    if (right_begin < begun) collect(2 * node + 1, width / 2, item, begun);
    return;
  }
  const std::size_t block = (node - leaves_) * kBlock;
  for (std::size_t at = block; at < std::min(block + kBlock, begun); ++at) {
    if (ends_[at] > item.first) found_.push_back(ranges_[at]);
  }
}

// By offset. Many are first dealt out to as many stretches of the arena, so that each has a few to sort.
void LowestGap::sort_found() {
  constexpr std::size_t kFew = 64;
  if (found_.size() < kFew) {
    std::ranges::sort(found_, {}, &Range::offset);
    return;
  }
  const auto highest = static_cast<std::uint64_t>(std::ranges::max_element(found_, {}, &Range::offset)->offset);
  const int shift =
      std::max(0, static_cast<int>(std::bit_width(highest)) - static_cast<int>(std::bit_width(found_.size())));
  const auto stretch = [&](const Range& range) { return static_cast<std::size_t>(range.offset >> shift); };
  stretch_ends_.assign((highest >> shift) + 2, 0);
  for (const Range& range : found_) ++stretch_ends_[stretch(range) + 1];
  std::partial_sum(stretch_ends_.begin(), stretch_ends_.end(), stretch_ends_.begin());
  dealt_.resize(found_.size());
  for (const Range& range : found_) dealt_[stretch_ends_[stretch(range)]++] = range;
  std::uint32_t begin = 0;
  for (const std::uint32_t end : stretch_ends_) {
    if (end - begin > 1) std::ranges::sort(dealt_.begin() + begin, dealt_.begin() + end, {}, &Range::offset);
    begin = end;
  }
  std::swap(found_, dealt_);
}

std::int64_t LowestGap::place(std::uint32_t item, Range beside) {
  const Item& placed = items_[item];
  found_.clear();
  if (beside.offset < beside.end) found_.push_back(beside);
  const auto begun = static_cast<std::size_t>(std::ranges::lower_bound(begins_, placed.last) - begins_.begin());
  collect(1, leaves_, placed, begun);
  work_ += found_.size() + 1;
  sort_found();
  std::int64_t offset = 0;  // nothing that meets the item and was looked at ends above it
  for (const Range& other : found_) {
    if (other.offset - offset >= placed.bytes) break;
    offset = std::max(offset, other.end);
  }
  put(item, offset);
  return offset;
}

}  // namespace reprise::detail
