#include "place/lowest_gap.h"

#include <algorithm>

namespace reprise::detail {

void LowestGap::put(const Item& item, std::int64_t offset) {
  const auto at = std::ranges::upper_bound(placed_, offset, {}, &Placed::offset);
  placed_.insert(at, {.offset = offset, .end = offset + item.bytes, .first = item.first, .last = item.last});
  top_ = std::max(top_, offset + item.bytes);
}

std::int64_t LowestGap::place(const Item& item) {
  std::int64_t offset = 0;  // nothing that meets the item and was looked at ends above it
  std::size_t i = 0;
  for (; i < placed_.size(); ++i) {
    const Placed& other = placed_[i];
    if (other.first >= item.last || item.first >= other.last) continue;
    if (other.offset - offset >= item.bytes) break;
    offset = std::max(offset, other.end);
  }
  work_ += i;
  put(item, offset);
  return offset;
}

}  // namespace reprise::detail
