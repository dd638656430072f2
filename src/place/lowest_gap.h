// Places items one after the other, each into the lowest gap that is free for all of its life.
//
// What meets an item is found without lists of neighbours, which would have an entry for each pair. Items lie in the
// order in which they begin, in blocks, and a tree over the blocks knows for each of its nodes where the last placed
// item below it ends: a stretch of sections that ends at `last` meets items of the first blocks only, and of these only
// where that end is behind the beginning of the stretch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "place/sections.h"

namespace reprise::detail {

class LowestGap {
 public:
  // `items` outlive it; nothing is placed yet.
  explicit LowestGap(std::span<const Item> items);

  struct Range {
    std::int64_t offset = 0;
    std::int64_t end = 0;
  };

  // What was placed by somebody else. REQUIRES: it is not placed, and overlaps nothing placed before.
  void put(std::uint32_t item, std::int64_t offset);
  // Returns the offset. `beside` is taken too. O(log items) for each placed item that meets it. REQUIRES: it is not
  // placed.
  std::int64_t place(std::uint32_t item, Range beside);

  [[nodiscard]] std::int64_t top() const { return top_; }   // where the highest ends
  [[nodiscard]] std::size_t work() const { return work_; }  // placed items looked at

 private:
  static constexpr std::size_t kBlock = 16;

  void sort_found();
  void collect(std::size_t node, std::size_t level_width, const Item& item, std::size_t begun);

  std::span<const Item> items_;
  std::vector<std::uint32_t> place_of_;  // by item: where it lies in the order of the begins
  std::vector<std::uint32_t> begins_;    // in that order, as all that follows
  std::vector<std::uint32_t> ends_;      // 0: not placed
  std::vector<Range> ranges_;
  std::size_t leaves_ = 1;           // a power of two
  std::vector<std::uint32_t> tree_;  // the root is tree_[1]; the children of node n are 2n and 2n + 1
  std::vector<Range> dealt_;
  std::vector<std::uint32_t> stretch_ends_;
  std::vector<Range> found_;  // while an item is placed: what meets it
  std::int64_t top_ = 0;
  std::size_t work_ = 0;
};

}  // namespace reprise::detail
