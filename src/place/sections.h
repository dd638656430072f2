// Time as a packer sees it. Two buffers that are live together are so when the later of them begins, so that only the
// times at which a buffer begins count: each is one section, up to the next.
//
//   a |0-----4)          begins 0, 2, 3: sections 0, 1, 2
//   b     |2---5)        a is in sections 0 to 2, b in 1 and 2, c in 2
//   c       |3-4)        load: a, a + b, a + b + c
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reprise/place.h"

namespace reprise::detail {

struct Item {
  std::uint32_t first;            // section
  std::uint32_t last;             // the section after its last
  std::int64_t bytes;             // rounded up to the alignment
  std::size_t length;             // of its life, in times
  std::int64_t highest_load = 0;  // of the sections it is in

  [[nodiscard]] bool meets(const Item& other) const { return first < other.last && other.first < last; }
};

// What items are ordered by.
inline double bytes_of(const Item& item) { return static_cast<double>(item.bytes); }
inline double length_of(const Item& item) { return static_cast<double>(item.length); }
inline double load_of(const Item& item) { return static_cast<double>(item.highest_load); }
inline double area_of(const Item& item) { return bytes_of(item) * length_of(item); }

struct Sections {
  std::vector<Item> items{};          // by buffer
  std::vector<std::int64_t> loads{};  // by section
  std::int64_t load_bytes = 0;        // the highest of them
};

// Throws InputError as pack() does.
[[nodiscard]] Sections sections_of(std::span<const Buffer> buffers, std::int64_t alignment_bytes);

}  // namespace reprise::detail
