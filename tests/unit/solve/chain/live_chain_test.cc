#include "solve/chain/live_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reprise::detail {
namespace {

using testing::IsEmpty;

TEST(LiveChainTest, APoolingLayerRunsAgainForItsIndices) {
  const std::vector<LiveLayer> pool = {{.bytes = 1, .saved_bytes = 2, .gradient_bytes = 1}};
  EXPECT_EQ(live_peak(pool, 4, false, {}), 8);
  EXPECT_EQ(live_peak(pool, 4, true, {}), 4 + 2 + 1 + 4) << "the backward with the input's gradient";
}

TEST(LiveChainTest, CountsWhatTheBackwardReads) {
  const auto peak = [](const LiveLayer& layer) { return live_peak(std::vector{layer}, 10, false, {}); };
  EXPECT_EQ(peak({.bytes = 3, .gradient_bytes = 3}), 16) << "the loss gradient while the output lives";
  EXPECT_EQ(peak({.bytes = 3, .reads_output = true, .gradient_bytes = 3, .backward_workspace_bytes = 5}), 21);
  EXPECT_EQ(peak({.bytes = 3, .gradient_bytes = 3, .backward_workspace_bytes = 5}), 18);
  EXPECT_EQ(peak({.bytes = 3, .gradient_bytes = 3, .forward_workspace_bytes = 9}), 22);
}

TEST(LiveChainTest, NoLayersNoChoice) {
  EXPECT_EQ(least_live_peak({}, 4, true).peak_bytes, 4);
  EXPECT_EQ(live_peak({}, 4, true, {}), 4);
}

// With equal layers of one byte, the segment (i, j) takes 1 + (j - i - 1) + 2 bytes, beside the checkpoints before it.
TEST(LiveChainTest, EqualLayersGetShorterSegmentsToTheRight) {
  const std::vector<LiveLayer> layers(6, {.bytes = 1, .gradient_bytes = 1});
  EXPECT_THAT(least_live_peak(layers, 1, true).checkpoints, testing::Not(IsEmpty()));
  EXPECT_EQ(least_live_peak(layers, 1, true).peak_bytes, 5);
  EXPECT_EQ(live_peak(layers, 1, true, {3, 5}), 5);
  EXPECT_EQ(live_peak(layers, 1, true, {}), 1 + 5 + 2);
}

TEST(LiveChainTest, ForwardWorkspacesTakeTheGeneralWay) {
  std::vector<LiveLayer> layers(6, {.bytes = 1, .gradient_bytes = 1});
  layers[5].forward_workspace_bytes = 10;
  const ChainAnswer answer = least_live_peak(layers, 1, true);
  EXPECT_EQ(answer.peak_bytes, live_peak(layers, 1, true, answer.checkpoints));
  EXPECT_EQ(answer.peak_bytes, 1 + 1 + 1 + 10) << "input, the last layer's input and output, workspace";
}

}  // namespace
}  // namespace reprise::detail
