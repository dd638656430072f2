// Which of several shapes has CUDA graphs.
#include "runtime/session/recent_use.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(RecentUse, OneThatIsUsedNowAndThenDoesNotTakeThePlaceOfAnother) {
  RecentUse often, seldom;
  std::int64_t now = 0;
  for (int i = 0; i < 1000; ++i) {
    (i % 3 == 0 ? seldom : often).note(++now);
    EXPECT_FALSE(i > 50 && seldom.is_more_than(often, now)) << i;
  }
}

TEST(RecentUse, TwoThatAreUsedAlikeKeepTheirPlaces) {
  RecentUse one, other;
  std::int64_t now = 0;
  for (int i = 0; i < 1000; ++i) {
    (i % 2 == 0 ? one : other).note(++now);
    EXPECT_FALSE(i > 50 && (one.is_more_than(other, now) || other.is_more_than(one, now))) << i;
  }
}

TEST(RecentUse, OneThatIsUsedFromNowOnTakesThePlaceSoon) {
  RecentUse before, after;
  std::int64_t now = 0;
  for (int i = 0; i < 10000; ++i) before.note(++now);
  int steps = 0;
  while (!after.is_more_than(before, now)) {
    after.note(++now);
    ASSERT_LT(++steps, 100);
  }
  EXPECT_GT(steps, 10);
}

}  // namespace
}  // namespace reprise
