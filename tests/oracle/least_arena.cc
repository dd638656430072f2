// In some smallest packing every buffer lies on the ground or on another one that it meets in time: otherwise it could
// be let down. Taken in the order of their offsets, each then lies on the highest of those before it. So it is enough
// to try all orders. A stack at the top is turned over: it stands on the ground, and orders that would put a buffer of
// the stack higher than its place in it do not count.
#include "oracle/least_arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace reprise::test {
namespace {

struct Box {
  std::size_t begin, end;
  std::int64_t bytes;
  std::int64_t fixed = -1;  // the offset that it must have
  std::int64_t top = 0;
};

// The arena of one order; more than any if it is none.
std::int64_t arena_of(std::vector<Box>& boxes, const std::vector<std::size_t>& order) {
  std::int64_t arena = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    Box& box = boxes[order[k]];
    std::int64_t offset = 0;
    for (std::size_t j = 0; j < k; ++j) {
      const Box& below = boxes[order[j]];
      if (below.begin < box.end && box.begin < below.end) offset = std::max(offset, below.top);
    }
    if (box.fixed >= 0 && offset > box.fixed) return std::numeric_limits<std::int64_t>::max();
    box.top = std::max(offset, box.fixed) + box.bytes;
    arena = std::max(arena, box.top);
  }
  return arena;
}

}  // namespace

std::int64_t least_arena(const std::vector<Buffer>& buffers, bool outliving_on_top) {
  std::size_t end_of_time = 0;
  for (const Buffer& buffer : buffers) end_of_time = std::max({end_of_time, buffer.end, buffer.begin + 1});
  std::vector<Box> boxes;
  for (const Buffer& buffer : buffers) {
    boxes.push_back({.begin = buffer.begin, .end = buffer.outlives ? end_of_time : buffer.end, .bytes = buffer.bytes});
  }
  if (outliving_on_top) {
    std::vector<std::size_t> stack;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (buffers[i].outlives) stack.push_back(i);
    }
    std::ranges::stable_sort(stack, {}, [&](std::size_t i) { return buffers[i].begin; });
    std::int64_t height = 0;
    for (const std::size_t i : stack) {
      boxes[i].fixed = height;
      height += boxes[i].bytes;
    }
  }
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  do {
    least = std::min(least, arena_of(boxes, order));
  } while (std::ranges::next_permutation(order).found);
  return boxes.empty() ? 0 : least;
}

}  // namespace reprise::test
