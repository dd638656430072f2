#include "solve/chain/static_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/solve/chain/vectors.h"

namespace reprise::detail {
namespace {

using testing::ElementsAre;
using Sizes = std::vector<std::int64_t>;
using enum SegmentMemory;

TEST(StaticChainTest, FindsKnownOptima) {
  for (const ChainVector& v : chain_vectors()) {
    const std::pair<SegmentMemory, std::int64_t> known[] = {
        {kChen, v.chen}, {kLiteral, v.literal}, {kRepaired, v.repaired}};
    for (const auto& [memory, peak] : known) {
      const ChainAnswer answer = least_static_peak(v.sizes, memory);
      EXPECT_EQ(answer.peak_bytes, peak) << v.name;
      EXPECT_EQ(static_peak(v.sizes, answer.checkpoints, memory), peak) << v.name;
    }
  }
}

TEST(StaticChainTest, UniqueOptimaAreFound) {
  EXPECT_THAT(least_static_peak(Sizes{0, 7, 1, 6, 3, 6, 6, 7}, kChen).checkpoints, ElementsAre(2, 4, 6));
  EXPECT_THAT(least_static_peak(Sizes{0, 5, 10, 20, 5, 15, 5}, kChen).checkpoints, ElementsAre(2, 4));
  EXPECT_THAT(least_static_peak(Sizes{4, 16, 16, 2, 8, 8, 1, 4, 1}, kChen).checkpoints, ElementsAre(3));
}

TEST(StaticChainTest, PeaksOfGivenCheckpoints) {
  EXPECT_EQ(static_peak(vgg19_sizes(), {3, 6}, kChen), 3724 * 2048);
  EXPECT_EQ(static_peak(vgg19_sizes(), {3, 11}, kLiteral), 5194 * 2048);
  EXPECT_EQ(static_peak(vgg19_sizes(), {3, 11}, kRepaired), 5194 * 2048);
  EXPECT_EQ(static_peak(Sizes{1, 2, 4, 8, 16}, {1, 2, 3, 4}, kLiteral), 30) << "no gradient where nothing is inside";
  EXPECT_EQ(static_peak(Sizes{1, 2, 4, 8, 16}, {2, 4}, kRepaired), 36);
}

TEST(StaticChainTest, HandlesTheShortestChains) {
  EXPECT_EQ(least_static_peak(Sizes{4}, kChen).peak_bytes, 0);
  EXPECT_EQ(least_static_peak(Sizes{4}, kRepaired).peak_bytes, 4);
  EXPECT_EQ(least_static_peak(Sizes{0, 0, 0}, kLiteral).peak_bytes, 0);
}

}  // namespace
}  // namespace reprise::detail
