// Tests planned addresses: blocks that hand out nothing twice.
#include "runtime/device/arena.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device/meter.h"

namespace reprise::test {
namespace {

// -- Blocks.

// A guide that answers with the offsets it was given, in order.
class Offsets final : public RequestGuide {
 public:
  Offsets(std::shared_ptr<ArenaBlock> block, std::vector<std::int64_t> offsets)
      : block_(std::move(block)), offsets_(std::move(offsets)) {}
  void* take(std::int64_t bytes) override {
    return next_ < offsets_.size() ? block_->take(offsets_[next_++], bytes) : nullptr;
  }
  void was_served(void* /*data*/, std::int64_t /*bytes*/) override { ++served_elsewhere; }
  void will_be_freed(void* /*data*/) override {}

  int served_elsewhere = 0;

 private:
  std::shared_ptr<ArenaBlock> block_;
  std::vector<std::int64_t> offsets_;
  std::size_t next_ = 0;
};

at::Tensor floats(std::int64_t count) { return at::empty({count}, at::kFloat); }

TEST(Arenas, HandOutNothingThatIsInUse) {
  install_meter();
  Arena arena(at::kCPU);
  const auto block = arena.seat(1024, std::nullopt)->block;
  EXPECT_NE(block->take(256, 256), nullptr);
  EXPECT_EQ(block->take(256, 256), nullptr);   // the same
  EXPECT_EQ(block->take(0, 257), nullptr);     // its first byte
  EXPECT_EQ(block->take(511, 1), nullptr);     // its last byte
  EXPECT_EQ(block->take(300, 10), nullptr);    // inside of it
  EXPECT_EQ(block->take(0, 1024), nullptr);    // around it
  EXPECT_EQ(block->take(1024, 1), nullptr);    // outside of the block
  EXPECT_EQ(block->take(1000, 100), nullptr);  // half outside
  EXPECT_NE(block->take(0, 256), nullptr);     // beside it
  EXPECT_NE(block->take(512, 512), nullptr);
  EXPECT_EQ(block->live_bytes(), 1024);
  EXPECT_EQ(block->free_offset(0, 1024, 64, 64), std::nullopt);
  EXPECT_TRUE(give_back_to_arena(const_cast<void*>(block->base())));
  EXPECT_EQ(block->free_offset(0, 1024, 64, 64), 0);
  EXPECT_EQ(block->highest_free_offset(100, 64), 128);
  EXPECT_EQ(block->highest_free_offset(257, 64), std::nullopt);
}

TEST(Arenas, ServeOnlyTheThreadThatIsGuided) {
  install_meter();
  Arena arena(at::kCPU);
  const auto block = arena.seat(4096, std::nullopt)->block;
  Offsets guide(block, {0, 0, 1024});
  const GuideScope scope(at::kCPU, &guide);
  const at::Tensor first = floats(256);
  EXPECT_EQ(first.data_ptr(), block->base());
  const at::Tensor forwarded = floats(256);  // its memory is in use
  EXPECT_FALSE(block->contains(forwarded.data_ptr()));
  EXPECT_EQ(guide.served_elsewhere, 1);
  at::Tensor other;
  std::thread([&] { other = floats(16); }).join();
  EXPECT_FALSE(block->contains(other.data_ptr()));
  at::Tensor third = floats(16);
  EXPECT_TRUE(block->is_live(third.data_ptr()));
  std::thread([&] { third.reset(); }).join();  // whoever frees it
  EXPECT_EQ(block->live_bytes(), 1024);
}

TEST(Arenas, CountAsAWholeUntilTheyAreRetired) {
  const std::int64_t before = read_meter(at::kCPU).allocated_bytes;
  const MeteredSince since;
  at::Tensor kept;
  {
    Arena arena(at::kCPU);
    const auto block = arena.seat(1 << 20, std::nullopt)->block;
    EXPECT_EQ(read_meter(at::kCPU).allocated_bytes - before, 1 << 20);
    Offsets guide(block, {4096});
    {
      const GuideScope scope(at::kCPU, &guide);
      kept = floats(1000);
    }
    EXPECT_EQ(since.bytes(), 1 << 20);
    MeteredSince later;
    EXPECT_EQ(later.bytes(), 0);
    EXPECT_TRUE(later.add(kept.data_ptr()));
    EXPECT_EQ(later.bytes(), 1 << 20);
    kept.fill_(7);
    arena.give_back();
    EXPECT_EQ(later.bytes(), 4000);
  }
  EXPECT_EQ(since.bytes(), 4000);  // the arena is gone, and what somebody holds is still there
  EXPECT_EQ(kept.sum().item<float>(), 7000);
  kept.reset();
  EXPECT_EQ(since.bytes(), 0);
  EXPECT_EQ(read_meter(at::kCPU).allocated_bytes, before);
}

TEST(Arenas, StayInsideTheirLimit) {
  install_meter();
  Arena arena(at::kCPU);
  EXPECT_FALSE(arena.seat(1000, 999));
  EXPECT_EQ(arena.excess(1000, 900), 100);
  const auto first = arena.seat(1024, 1024);
  ASSERT_TRUE(first);
  void* held = first->block->take(first->offset + 768, 256);
  EXPECT_FALSE(arena.seat(1024, 1024 + 255));  // beside what is held in the old block
  const auto around = arena.seat(768, 1024);
  EXPECT_EQ(around->block, first->block);  // below it
  EXPECT_EQ(around->offset, 0);
  const auto second = arena.seat(1024, 1024 + 256);
  ASSERT_TRUE(second);
  EXPECT_NE(second->block, first->block);
  EXPECT_EQ(first->block->take(0, 64), nullptr);  // it is retired
  EXPECT_TRUE(give_back_to_arena(held));
  EXPECT_FALSE(give_back_to_arena(held));  // its block is gone
}

TEST(Arenas, GrowWhereGradientsAreAddedUpAgainAndAgain) {
  install_meter();
  Arena arena(at::kCPU);
  void* gradient = nullptr;
  const void* last = nullptr;
  int blocks = 0;
  for (int round = 0; round < 4; ++round) {
    for (int batch = 0; batch < 2; ++batch) {
      const auto seat = arena.seat(1024, std::nullopt);
      if (seat->block->base() != last) ++blocks;
      last = seat->block->base();
      if (batch == 0) gradient = seat->block->take(seat->offset + 960, 64);
    }
    give_back_to_arena(gradient);
  }
  EXPECT_EQ(blocks, 3);  // the third has room for both
}

}  // namespace
}  // namespace reprise::test
