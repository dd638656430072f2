// Bottom-up search for a packing under a ceiling.
//
// The floor of an item that is not placed yet is where the highest placed item that meets it ends. A dive takes the
// item with the lowest floor again and again and puts it there, so that offsets never fall. It fails where a section
// cannot take what is still to come: top + bytes to come > ceiling. On three items under a ceiling of 4:
//
//   a |0----2) 2 bytes      floors 0 0 0; b has the highest priority: b at 0
//   b   |1------3) 1 byte   floors 1 . 1 for a, c: a at 1, section 1 holds a and b and no more: 3 <= 4
//   c      |2----4) 3 bytes floor 1 for c (it meets b, not a): c at 1, ends at 4
//
// Not every item may be taken: one whose floor is at or above the floor + size of another could have that other whole
// beneath it, so the other comes first. Where a dive fails, it goes back to the last item that had an alternative.
//
// O(items x (items + sections)) for a dive without failures; memory is bounded by what may be undone, kMaxUndo entries.
// Tested by tests/unit/place/dive_test.cc, tests/oracle/place_test.cc and tests/property/place_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "place/sections.h"

namespace reprise::detail {

class Dive {
 public:
  struct Limits {
    std::size_t nodes = 0;  // items placed, those taken back included
    std::size_t work = 0;   // items and sections looked at
  };

  // `ceilings` are by section. Both outlive the dive.
  Dive(std::span<const Item> items, std::span<const std::int64_t> ceilings);

  // `ranks` are by item, each different; of equal floors the lowest rank comes first. Whether everything lies under the
  // ceilings; if so, offsets() says where.
  [[nodiscard]] bool run(std::span<const std::uint32_t> ranks, Limits limits);

  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return offsets_; }
  // Where the last run failed for the first time, a section could not take these items any more: they came too late.
  [[nodiscard]] const std::vector<std::uint32_t>& blamed() const { return blamed_; }
  [[nodiscard]] std::size_t work() const { return work_; }  // of all runs

 private:
  static constexpr std::size_t kBranches = 3;
  static constexpr std::size_t kMaxUndo = std::size_t{1} << 22;

  // What a node looks at for each item that is not placed, side by side in memory.
  struct Open {
    std::int64_t floor;
    std::int64_t bytes;
    std::uint32_t first;
    std::uint32_t last;
    std::uint32_t rank;
    std::uint32_t item;
  };
  struct Level {
    std::array<std::uint32_t, kBranches> candidates;
    std::size_t count = 0;
    std::size_t next = 0;
    std::size_t raised_begin = 0;    // in raised_: the floors that its current candidate raised
    std::int64_t lowest_offset = 0;  // before it
  };
  struct Raised {
    std::uint32_t item;
    std::int64_t floor;  // before
  };

  void start(std::span<const std::uint32_t> ranks);
  void push_level();
  [[nodiscard]] bool put(std::uint32_t item);
  void take_back(const Level& level);
  void blame(std::uint32_t item, std::int64_t top);

  std::span<const Item> items_;
  std::span<const std::int64_t> ceilings_;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> to_come_;   // by section: bytes of open items
  std::vector<Open> open_;              // items that are not placed, in any order
  std::vector<std::uint32_t> open_at_;  // by item: where in open_
  std::vector<Open> placed_;            // those taken out of open_, as they were then, the latest at the end
  std::vector<Level> levels_;
  std::vector<Raised> raised_;
  std::vector<std::uint32_t> blamed_;
  std::size_t fixed_levels_ = 0;  // the first levels, which can no longer be undone
  std::int64_t lowest_offset_ = 0;
  std::int64_t lowest_end_ = 0;  // no open item can end below it
  std::size_t work_ = 0;
};

}  // namespace reprise::detail
