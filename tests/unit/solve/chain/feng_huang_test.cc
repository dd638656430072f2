#include "solve/chain/feng_huang.h"

#include <gtest/gtest.h>

#include "solve/chain/static_chain.h"
#include "unit/solve/chain/vectors.h"

namespace reprise::detail {
namespace {

TEST(FengHuangTest, FindsKnownOptima) {
  for (const ChainVector& v : chain_vectors()) {
    const ChainAnswer answer = feng_huang(v.sizes);
    EXPECT_EQ(answer.peak_bytes, v.chen) << v.name;
    EXPECT_EQ(static_peak(v.sizes, answer.checkpoints, SegmentMemory::kChen), v.chen) << v.name;
  }
}

TEST(FengHuangTest, HandlesTheShortestChain) { EXPECT_EQ(feng_huang(std::vector<std::int64_t>{4}).peak_bytes, 0); }

}  // namespace
}  // namespace reprise::detail
