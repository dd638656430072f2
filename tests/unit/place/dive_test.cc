#include "place/dive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace reprise::detail {
namespace {

using testing::ElementsAre;

constexpr Dive::Limits kNoLimit{.nodes = 1000, .work = 1'000'000};

std::vector<Item> items_of(const std::vector<Buffer>& buffers) { return sections_of(buffers, 1).items; }

// The example of dive.h: a 0-2, b 1-3, c 2-4.
std::vector<Item> three() {
  return items_of(
      {{.begin = 0, .end = 2, .bytes = 2}, {.begin = 1, .end = 3, .bytes = 1}, {.begin = 2, .end = 4, .bytes = 3}});
}

TEST(DiveTest, TakesTheLowestFloorAndThenTheLowestRank) {
  const std::vector<Item> items = three();
  const std::vector<std::int64_t> ceilings(3, 4);
  Dive dive(items, ceilings);
  ASSERT_TRUE(dive.run(std::vector<std::uint32_t>{1, 0, 2}, kNoLimit));
  EXPECT_THAT(dive.offsets(), ElementsAre(1, 0, 1));
}

TEST(DiveTest, FailsUnderACeilingThatIsTooLow) {
  const std::vector<Item> items = three();
  const std::vector<std::int64_t> ceilings(3, 3);
  EXPECT_FALSE(Dive(items, ceilings).run(std::vector<std::uint32_t>{0, 1, 2}, kNoLimit));
  const std::vector<std::int64_t> falling{4, 4, 3};
  EXPECT_FALSE(Dive(items, falling).run(std::vector<std::uint32_t>{0, 1, 2}, kNoLimit));
}

// The first and the second on the ground leave no room for the third beneath the ceiling; the second has to make way.
TEST(DiveTest, GoesBackWhereItFails) {
  const std::vector<Item> items = items_of({{.begin = 0, .end = 1, .bytes = 1},
                                            {.begin = 2, .end = 3, .bytes = 2},
                                            {.begin = 1, .end = 3, .bytes = 2},
                                            {.begin = 0, .end = 2, .bytes = 4}});
  const std::vector<std::int64_t> ceilings(3, 6);
  const std::vector<std::uint32_t> ranks{0, 1, 2, 3};
  Dive dive(items, ceilings);
  EXPECT_FALSE(dive.run(ranks, {.nodes = items.size(), .work = kNoLimit.work}));
  EXPECT_THAT(dive.blamed(), ElementsAre(2));
  ASSERT_TRUE(dive.run(ranks, kNoLimit));
  EXPECT_THAT(dive.offsets(), ElementsAre(0, 2, 0, 2));
}

TEST(DiveTest, EndsAtItsLimits) {
  const std::vector<Item> items = three();
  const std::vector<std::int64_t> ceilings(3, 4);
  const std::vector<std::uint32_t> ranks{1, 0, 2};
  EXPECT_FALSE(Dive(items, ceilings).run(ranks, {.nodes = 2, .work = 1'000'000}));
  EXPECT_FALSE(Dive(items, ceilings).run(ranks, {.nodes = 1000, .work = 5}));
  EXPECT_TRUE(Dive(items, ceilings).run(ranks, {.nodes = 3, .work = 1'000'000}));
}

}  // namespace
}  // namespace reprise::detail
