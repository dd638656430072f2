#include "place/sections.h"

#include <algorithm>
#include <bit>
#include <string>

#include "reprise/error.h"

namespace reprise::detail {
namespace {

constexpr std::int64_t kMaxAlignment = std::int64_t{1} << 30;
constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 62;  // so that no offset of any packing overflows

void check_alignment(std::int64_t alignment) {
  if (alignment > 0 && alignment <= kMaxAlignment && std::has_single_bit(static_cast<std::uint64_t>(alignment))) return;
  throw InputError("alignment_bytes is " + std::to_string(alignment) + "; it must be a power of two up to 2^30");
}

void check(const Buffer& buffer, std::size_t i) {
  const std::string what = "buffer " + std::to_string(i);
  if (buffer.bytes < 0) throw InputError(what + " has a negative size: " + std::to_string(buffer.bytes));
  if (buffer.outlives || buffer.begin < buffer.end) return;
  throw InputError(what + " ends at " + std::to_string(buffer.end) + ", but begins at " + std::to_string(buffer.begin));
}

std::int64_t rounded(std::int64_t bytes, std::int64_t alignment) {
  return bytes >= kMaxTotalBytes ? kMaxTotalBytes : (bytes + alignment - 1) & -alignment;
}

// The maximum of any range of sections in O(log sections), after O(sections x log sections).
class RangeMaximum {
 public:
  explicit RangeMaximum(const std::vector<std::int64_t>& values) : levels_{values} {
    for (std::size_t width = 1; 2 * width <= values.size(); width *= 2) {
      const std::vector<std::int64_t>& below = levels_.back();
      std::vector<std::int64_t> level(values.size() - 2 * width + 1);
      for (std::size_t i = 0; i < level.size(); ++i) level[i] = std::max(below[i], below[i + width]);
      levels_.push_back(std::move(level));
    }
  }

  // REQUIRES: first < last.
  [[nodiscard]] std::int64_t of(std::size_t first, std::size_t last) const {
    std::size_t level = 0, width = 1;
    for (; 2 * width <= last - first; width *= 2) ++level;
    return std::max(levels_[level][first], levels_[level][last - width]);
  }

 private:
  std::vector<std::vector<std::int64_t>> levels_;  // levels_[k][i]: of the 2^k values from i on
};

std::vector<std::size_t> begins_of(std::span<const Buffer> buffers) {
  std::vector<std::size_t> begins;
  begins.reserve(buffers.size());
  for (const Buffer& buffer : buffers) begins.push_back(buffer.begin);
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

std::vector<std::int64_t> loads_of(const std::vector<Item>& items, std::size_t sections) {
  std::vector<std::int64_t> loads(sections + 1, 0);
  for (const Item& item : items) {
    loads[item.first] += item.bytes;
    loads[item.last] -= item.bytes;
  }
  loads.pop_back();
  for (std::size_t i = 1; i < loads.size(); ++i) loads[i] += loads[i - 1];
  return loads;
}

}  // namespace

Sections sections_of(std::span<const Buffer> buffers, std::int64_t alignment_bytes) {
  check_alignment(alignment_bytes);
  const std::vector<std::size_t> begins = begins_of(buffers);
  const auto section = [&](std::size_t time) {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(begins, time) - begins.begin());
  };
  std::size_t last_time = 0;
  for (const Buffer& buffer : buffers) last_time = std::max({last_time, buffer.begin + 1, buffer.end});
  Sections found;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    check(buffer, i);
    const std::size_t end = buffer.outlives ? last_time : buffer.end;
    found.items.push_back({.first = section(buffer.begin),
                           .last = section(end),
                           .bytes = rounded(buffer.bytes, alignment_bytes),
                           .length = end - buffer.begin});
    total += found.items.back().bytes;
    if (total >= kMaxTotalBytes) throw InputError("the sizes of the buffers together reach 2^62 bytes");
  }
  found.loads = loads_of(found.items, begins.size());
  if (found.loads.empty()) return found;
  found.load_bytes = *std::ranges::max_element(found.loads);
  const RangeMaximum highest(found.loads);
  for (Item& item : found.items) item.highest_load = highest.of(item.first, item.last);
  return found;
}

}  // namespace reprise::detail
