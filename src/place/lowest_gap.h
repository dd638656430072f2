// Places items one after the other, each into the lowest gap that is free for all of its life.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "place/sections.h"

namespace reprise::detail {

class LowestGap {
 public:
  // What was placed by somebody else. REQUIRES: it overlaps nothing placed before.
  void put(const Item& item, std::int64_t offset);
  // Returns the offset. O(what was placed before), less where the gap is low.
  std::int64_t place(const Item& item);

  [[nodiscard]] std::int64_t top() const { return top_; }   // where the highest ends
  [[nodiscard]] std::size_t work() const { return work_; }  // placed items looked at

 private:
  struct Placed {
    std::int64_t offset;
    std::int64_t end;
    std::uint32_t first;
    std::uint32_t last;
  };
  std::vector<Placed> placed_;  // by offset
  std::int64_t top_ = 0;
  std::size_t work_ = 0;
};

}  // namespace reprise::detail
