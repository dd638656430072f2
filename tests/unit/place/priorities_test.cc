#include "place/priorities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace reprise::detail {
namespace {

using testing::ElementsAre;

TEST(PrioritiesTest, AreByAreaFirstAndByTheEndToo) {
  const std::vector<Item> items{{.first = 0, .last = 2, .bytes = 8, .length = 2},
                                {.first = 1, .last = 9, .bytes = 1, .length = 8},
                                {.first = 0, .last = 5, .bytes = 4, .length = 5}};
  const Priorities priorities(items);
  std::vector<std::vector<std::uint32_t>> all;
  for (std::size_t k = 0; k < priorities.size(); ++k) all.push_back(priorities.ranks(k));
  EXPECT_THAT(all.front(), ElementsAre(1, 2, 0));
  EXPECT_THAT(all, testing::Contains(ElementsAre(2, 0, 1)));  // the last to end comes first
}

TEST(PrioritiesTest, MoveUpAndKeepTheirOrder) {
  std::vector<Item> items;
  for (std::int64_t i = 0; i < 10; ++i) items.push_back({.first = 0, .last = 1, .bytes = 100 - i, .length = 1});
  Priorities priorities(items);
  priorities.move_up(0, std::vector<std::uint32_t>{9, 8});
  // To 7/10 of ranks 9 and 8: behind what had rank 6 and 5.
  EXPECT_THAT(priorities.ranks(0), ElementsAre(0, 1, 2, 3, 4, 5, 7, 9, 6, 8));
  EXPECT_THAT(priorities.ranks(1), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)) << "the others stay";
}

}  // namespace
}  // namespace reprise::detail
