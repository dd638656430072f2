#include "place/lowest_gap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/random.h"

namespace reprise::detail {
namespace {

// The same by trying every end of what meets the item.
class NaiveShelf {
 public:
  std::int64_t place(const Item& item, LowestGap::Range beside) {
    std::vector<LowestGap::Range> taken{beside};
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].meets(item)) taken.push_back({.offset = offsets_[i], .end = offsets_[i] + items_[i].bytes});
    }
    std::vector<std::int64_t> offsets{0};
    for (const auto& range : taken) offsets.push_back(range.end);
    std::ranges::sort(offsets);
    const auto is_free = [&](std::int64_t offset) {
      return std::ranges::none_of(taken, [&](const LowestGap::Range& range) {
        return offset < range.end && range.offset < offset + item.bytes && range.offset < range.end;
      });
    };
    put(item, *std::ranges::find_if(offsets, is_free));
    return offsets_.back();
  }

  void put(const Item& item, std::int64_t offset) {
    items_.push_back(item);
    offsets_.push_back(offset);
  }

 private:
  std::vector<Item> items_;
  std::vector<std::int64_t> offsets_;
};

Item some_item(test::Random& random, std::int64_t sections, std::int64_t longest) {
  const auto first = static_cast<std::uint32_t>(random.below(sections));
  const auto length = static_cast<std::uint32_t>(1 + random.below(longest));
  return {.first = first, .last = first + length, .bytes = 1 + random.below(50), .length = length};
}

// Some hundreds of long lives make more than a few meet each item.
TEST(LowestGapTest, IsWhatTryingEveryOffsetFinds) {
  for (const std::int64_t longest : {1, 10, 300}) {
    test::Random random(static_cast<std::uint64_t>(longest));
    std::vector<Item> items;
    for (int i = 0; i < 600; ++i) items.push_back(some_item(random, 200, longest));
    LowestGap shelf(items);
    NaiveShelf naive;
    std::int64_t top = 0;
    for (std::uint32_t i = 0; i < items.size(); ++i) {
      const std::int64_t offset = random.below(1000);
      const LowestGap::Range beside{.offset = offset, .end = offset + random.below(100)};
      const std::int64_t expected = naive.place(items[i], beside);
      ASSERT_EQ(shelf.place(i, beside), expected) << "item " << i << " of " << longest;
      top = std::max(top, expected + items[i].bytes);
    }
    EXPECT_EQ(shelf.top(), top);
  }
}

TEST(LowestGapTest, KeepsClearOfWhatWasPutThere) {
  const std::vector<Item> items{{.first = 0, .last = 3, .bytes = 4, .length = 3},
                                {.first = 2, .last = 4, .bytes = 2, .length = 2},
                                {.first = 3, .last = 5, .bytes = 3, .length = 2}};
  LowestGap shelf(items);
  shelf.put(0, 2);
  EXPECT_EQ(shelf.place(1, {}), 0);
  EXPECT_EQ(shelf.place(2, {}), 2);
  EXPECT_EQ(shelf.top(), 6);
}

// What does not meet an item is not looked at: twice as many lives of the same length are twice the work.
TEST(LowestGapTest, LooksOnlyAtWhatMeetsTheItem) {
  const auto work_of = [](std::uint32_t count) {
    std::vector<Item> items;
    for (std::uint32_t i = 0; i < count; ++i) items.push_back({.first = i, .last = i + 4, .bytes = 8, .length = 4});
    LowestGap shelf(items);
    for (std::uint32_t i = 0; i < count; ++i) static_cast<void>(shelf.place(i, {}));
    return shelf.work();
  };
  EXPECT_LE(work_of(2000), 2 * work_of(1000) + 100);
}

}  // namespace
}  // namespace reprise::detail
