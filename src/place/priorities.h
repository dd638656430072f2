// In which order dives take items of equal floors: by area, length, size, load, and end of their lives. After a dive
// that failed, the items for which there was no room left move up, so that the next one places them lower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "place/sections.h"

namespace reprise::detail {

class Priorities {
 public:
  explicit Priorities(std::span<const Item> items);

  [[nodiscard]] std::size_t size() const { return ranks_.size(); }
  // By item: 0 comes first.
  [[nodiscard]] const std::vector<std::uint32_t>& ranks(std::size_t priority) const { return ranks_[priority]; }

  // Takes the items some way up towards rank 0 and keeps their order.
  void move_up(std::size_t priority, std::span<const std::uint32_t> items);

 private:
  std::vector<std::vector<std::uint32_t>> ranks_;
};

}  // namespace reprise::detail
