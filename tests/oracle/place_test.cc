// pack() against all packings of small inputs: it is valid, never below the least arena, and how often it is above is
// counted.
#include "reprise/place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "oracle/least_arena.h"
#include "support/random.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

using Buffers = std::vector<Buffer>;

std::string lines_of(const Buffers& buffers) {
  std::string text;
  for (const Buffer& b : buffers) {
    text += std::to_string(b.begin) + "-" + std::to_string(b.end) + " " + std::to_string(b.bytes) +
            (b.outlives ? " outlives\n" : "\n");
  }
  return text;
}

bool meet(const Buffer& a, const Buffer& b) {
  return (a.begin < b.end || b.outlives) && (b.begin < a.end || a.outlives);
}

void expect_valid(const Buffers& buffers, const Packing& packing) {
  ASSERT_EQ(packing.offsets.size(), buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::int64_t begin = packing.offsets[i], end = begin + buffers[i].bytes;
    ASSERT_GE(begin, 0) << lines_of(buffers);
    ASSERT_LE(end, packing.arena_bytes) << lines_of(buffers);
    for (std::size_t j = 0; j < i; ++j) {
      const bool apart = packing.offsets[j] >= end || packing.offsets[j] + buffers[j].bytes <= begin;
      ASSERT_TRUE(apart || !meet(buffers[i], buffers[j])) << i << " and " << j << " of\n" << lines_of(buffers);
    }
  }
}

void expect_stacked(const Buffers& buffers, const Packing& packing) {
  std::vector<std::pair<std::int64_t, std::size_t>> stack;  // by falling offset
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].outlives) stack.emplace_back(-packing.offsets[i], i);
  }
  std::ranges::sort(stack);
  std::int64_t top = packing.arena_bytes;
  std::size_t begin = 0;
  for (const auto& [offset, i] : stack) {
    ASSERT_EQ(packing.offsets[i] + buffers[i].bytes, top) << lines_of(buffers);
    ASSERT_GE(buffers[i].begin, begin) << lines_of(buffers);
    top = packing.offsets[i];
    begin = buffers[i].begin;
  }
}

// How far pack() is above the least arena, over many inputs.
class Gap {
 public:
  void add(const Buffers& buffers) {
    for (const bool on_top : {false, true}) {
      const Packing packing = pack(buffers, {.alignment_bytes = 1, .outliving_on_top = on_top});
      expect_valid(buffers, packing);
      if (on_top) expect_stacked(buffers, packing);
      const std::int64_t least = least_arena(buffers, on_top);
      ASSERT_LE(packing.load_bytes, least) << lines_of(buffers);
      ASSERT_GE(packing.arena_bytes, least) << lines_of(buffers);
      ++inputs_;
      above_ += packing.arena_bytes > least ? 1 : 0;
      worst_ = std::max(worst_, static_cast<double>(packing.arena_bytes) / static_cast<double>(least));
    }
  }

  void expect_rare(double most) const {
    testing::Test::RecordProperty("inputs", static_cast<int>(inputs_));
    testing::Test::RecordProperty("above_the_least", static_cast<int>(above_));
    testing::Test::RecordProperty("worst_ratio", std::to_string(worst_));
    EXPECT_LE(static_cast<double>(above_), most * static_cast<double>(inputs_)) << above_ << " of " << inputs_;
  }

 private:
  std::size_t inputs_ = 0;
  std::size_t above_ = 0;
  double worst_ = 1;
};

// Every life over `times` times, with every size up to `bytes`; those that reach the end also as outliving ones.
Buffers all_buffers(std::size_t times, std::int64_t bytes) {
  Buffers found;
  for (std::size_t begin = 0; begin < times; ++begin) {
    for (std::size_t end = begin + 1; end <= times; ++end) {
      for (std::int64_t size = 1; size <= bytes; ++size) {
        found.push_back({.begin = begin, .end = end, .bytes = size});
        if (end == times) found.push_back({.begin = begin, .end = end, .bytes = size, .outlives = true});
      }
    }
  }
  return found;
}

// All multisets of `count` of them.
template <typename Take>
void for_each_choice(const Buffers& all, std::size_t count, std::size_t from, Buffers& chosen, const Take& take) {
  if (chosen.size() == count) {
    take(chosen);
    return;
  }
  for (std::size_t i = from; i < all.size() && !testing::Test::HasFatalFailure(); ++i) {
    chosen.push_back(all[i]);
    for_each_choice(all, count, i, chosen, take);
    chosen.pop_back();
  }
}

TEST(PackTest, IsTheLeastArenaOnAllSmallInputs) {
  Gap gap;
  const Buffers all = all_buffers(3, 3);
  for (std::size_t count = 1; count <= (kSmallTests ? 3U : 4U); ++count) {
    Buffers chosen;
    for_each_choice(all, count, 0, chosen, [&](const Buffers& buffers) { gap.add(buffers); });
  }
  gap.expect_rare(0);
}

TEST(PackTest, IsMostlyTheLeastArenaOnSevenBuffers) {
  Gap gap;
  for (std::uint64_t seed = 0; seed < fewer(1000U) && !testing::Test::HasFatalFailure(); ++seed) {
    Random random(seed);
    Buffers buffers;
    for (int i = 0; i < 7; ++i) {
      const int begin = random.between(0, 8), end = random.between(begin + 1, 9);
      buffers.push_back({.begin = static_cast<std::size_t>(begin),
                         .end = static_cast<std::size_t>(end),
                         .bytes = 1 + random.below(seed % 2 == 0 ? 9 : 1000),
                         .outlives = end == 9 && random.chance(50)});
    }
    gap.add(buffers);
  }
  gap.expect_rare(0.001);
}

}  // namespace
}  // namespace reprise::test
