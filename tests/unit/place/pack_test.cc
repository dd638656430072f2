#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reprise/place.h"
#include "support/input_error.h"
#include "support/random.h"

namespace reprise {
namespace {

using testing::ElementsAre;

// Six buffers; the last two outlive the step.
const std::vector<Buffer> kSix{{.begin = 0, .end = 4, .bytes = 4},
                               {.begin = 1, .end = 3, .bytes = 4},
                               {.begin = 2, .end = 3, .bytes = 2},
                               {.begin = 3, .end = 5, .bytes = 3},
                               {.begin = 3, .end = 6, .bytes = 3, .outlives = true},
                               {.begin = 4, .end = 6, .bytes = 3, .outlives = true}};

std::string pack_error(const std::vector<Buffer>& buffers, const PlaceOptions& options) {
  return input_error([&] { static_cast<void>(pack(buffers, options)); });
}

// Buffers of a step whose lives nest: made in forward, used up in backward, with short ones between.
std::vector<Buffer> nested(std::size_t layers) {
  test::Random random(layers);
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < layers; ++i) {
    buffers.push_back({.begin = 2 * i, .end = 4 * layers - 2 * i, .bytes = 512 * (1 + random.below(100))});
    buffers.push_back({.begin = 2 * i + 1, .end = 2 * i + 2, .bytes = 512 * (1 + random.below(300))});
  }
  return buffers;
}

TEST(PackTest, FindsTheLeastArenaOfSixBuffers) {
  const Packing anywhere = pack(kSix, {.alignment_bytes = 1, .outliving_on_top = false});
  EXPECT_EQ(anywhere.load_bytes, 10);
  EXPECT_EQ(anywhere.arena_bytes, 10);
  const Packing on_top = pack(kSix, {.alignment_bytes = 1, .outliving_on_top = true});
  EXPECT_EQ(on_top.load_bytes, 10);
  EXPECT_EQ(on_top.arena_bytes, 11);
  EXPECT_EQ(on_top.offsets[4], 8);
  EXPECT_EQ(on_top.offsets[5], 5);
}

TEST(PackTest, RoundsSizesUpToTheAlignment) {
  const std::vector<Buffer> two{{.begin = 0, .end = 2, .bytes = 1}, {.begin = 1, .end = 2, .bytes = 513}};
  const Packing packing = pack(two, {});
  EXPECT_EQ(packing.load_bytes, 512 + 1024);
  EXPECT_EQ(packing.arena_bytes, 512 + 1024);
  for (const std::int64_t offset : packing.offsets) EXPECT_EQ(offset % 512, 0);
}

TEST(PackTest, WhatHasNoBytesTakesNoRoom) {
  EXPECT_EQ(pack({}, {}), Packing{});
  const std::vector<Buffer> one{{.begin = 0, .end = 3, .bytes = 0},
                                {.begin = 1, .end = 2, .bytes = 0, .outlives = true}};
  const Packing packing = pack(one, {});
  EXPECT_THAT(packing.offsets, ElementsAre(0, 0));
  EXPECT_EQ(packing.arena_bytes, 0);
}

TEST(PackTest, RefusesWhatCannotBePacked) {
  EXPECT_EQ(pack_error({{.begin = 0, .end = 1, .bytes = 1}, {.begin = 2, .end = 2, .bytes = 1}}, {}),
            "buffer 1 ends at 2, but begins at 2");
  EXPECT_EQ(pack_error({{.begin = 0, .end = 1, .bytes = -4}}, {}), "buffer 0 has a negative size: -4");
  for (const std::int64_t alignment : {std::int64_t{0}, std::int64_t{-8}, std::int64_t{48}, std::int64_t{1} << 31}) {
    EXPECT_EQ(pack_error({}, {.alignment_bytes = alignment}),
              "alignment_bytes is " + std::to_string(alignment) + "; it must be a power of two up to 2^30");
  }
  const std::int64_t half = std::int64_t{1} << 61;
  EXPECT_EQ(pack_error({{.begin = 0, .end = 1, .bytes = half}, {.begin = 1, .end = 2, .bytes = half}}, {}),
            "the sizes of the buffers together reach 2^62 bytes");
  EXPECT_EQ(pack_error({{.begin = 0, .end = 1, .bytes = INT64_MAX}}, {}),
            "the sizes of the buffers together reach 2^62 bytes");
}

TEST(PackTest, LivesThatNestReachTheLoad) {
  for (const std::size_t layers : {1U, 2U, 10U, 100U, 300U}) {
    const Packing packing = pack(nested(layers), {});
    EXPECT_EQ(packing.arena_bytes, packing.load_bytes) << layers;
    EXPECT_EQ(pack(nested(layers), {}), packing) << layers;
  }
}

// Counts, so that nothing depends on the machine: the greedy orders look at each pair of buffers a few times at most.
TEST(PackTest, WorkGrowsWithThePairsOfBuffersAtMost) {
  for (const std::size_t layers : {100U, 200U, 400U, 800U, 1600U}) {
    const std::size_t buffers = 2 * layers;
    EXPECT_LE(pack(nested(layers), {}).work, 4 * buffers * buffers) << layers;
  }
}

TEST(PackTest, StopsAtItsLimitWithAValidPacking) {
  test::Random random(7);
  std::vector<Buffer> hard;
  for (int i = 0; i < 400; ++i) {
    const auto begin = static_cast<std::size_t>(random.below(300));
    hard.push_back({.begin = begin,
                    .end = begin + 1 + static_cast<std::size_t>(random.below(60)),
                    .bytes = 1 + random.below(1000)});
  }
  const Packing at_once = pack(hard, {.alignment_bytes = 1, .work = 0});
  const Packing longer = pack(hard, {.alignment_bytes = 1, .work = 20'000'000});
  EXPECT_GE(at_once.arena_bytes, longer.arena_bytes);
  EXPECT_GE(longer.arena_bytes, longer.load_bytes);
  // It ends with the order or the dive at hand.
  EXPECT_LE(at_once.work, 400U * 400U);
  EXPECT_LE(longer.work, 20'000'000U + 400U * 1000U);
}

}  // namespace
}  // namespace reprise
