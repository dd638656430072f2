// Tests the limit on what an allocator hands out, with one that counts but has no memory.
#include "runtime/device/limit.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

namespace reprise {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
const c10::Device kDevice{c10::kCUDA, 0};

class Memory {
 public:
  class Block {
   public:
    Block() = default;
    Block(Memory& memory, std::int64_t bytes) : memory_(&memory), bytes_(bytes) { memory.allocated_ += bytes; }
    Block(Block&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
    Block& operator=(Block&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Block() {
      if (memory_ != nullptr) memory_->allocated_ -= bytes_;
    }

   private:
    Memory* memory_ = nullptr;
    std::int64_t bytes_ = 0;
  };

  // Hands out so much more than was asked for.
  Block allocate(std::int64_t bytes, std::int64_t more = 0) {
    return limit_.serve(kDevice, static_cast<std::size_t>(bytes), [&] { return Block(*this, bytes + more); });
  }
  void run_out(std::int64_t bytes) {
    (void)limit_.serve(kDevice, static_cast<std::size_t>(bytes), []() -> Block { throw std::bad_alloc(); });
  }
  [[nodiscard]] std::int64_t allocated() const { return allocated_; }
  [[nodiscard]] Limit& limit() { return limit_; }

 private:
  std::int64_t allocated_ = 0;
  Limit limit_{[this](c10::Device) { return allocated_; }};
};

// Frees one block at a time, as the online mode does: only if there is no room yet.
class Maker final : public RoomMaker {
 public:
  Maker(Memory& memory, std::int64_t limit_bytes) : memory_(memory), limit_bytes_(limit_bytes) {
    memory.limit().set(kDevice, limit_bytes, this);
  }
  ~Maker() override { memory_.limit().set(kDevice, 0, nullptr); }
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

  void make_room(std::int64_t requested_bytes, std::int64_t /*missing_bytes*/) override {
    if (++calls > 100) throw std::runtime_error("the request is made for ever");
    if (memory_.allocated() + requested_bytes <= limit_bytes_) return;
    if (blocks.empty()) throw std::runtime_error("there is nothing left");
    blocks.pop_back();
  }

  std::vector<Memory::Block> blocks;
  int calls = 0;

 private:
  Memory& memory_;
  std::int64_t limit_bytes_;
};

TEST(Limit, AsksForRoomBeforeARequestWouldPassIt) {
  Memory memory;
  Maker maker(memory, 100 * kMiB);
  for (int i = 0; i < 9; ++i) maker.blocks.push_back(memory.allocate(10 * kMiB));
  EXPECT_EQ(maker.calls, 0);
  const auto large = memory.allocate(35 * kMiB);
  EXPECT_EQ(maker.blocks.size(), 6);
  EXPECT_EQ(memory.allocated(), 95 * kMiB);
  EXPECT_EQ(memory.limit().take_watermark(), 95 * kMiB);
}

TEST(Limit, MakesRoomForAllOfALargerBlock) {
  Memory memory;
  Maker maker(memory, 100 * kMiB);
  for (int i = 0; i < 9; ++i) maker.blocks.push_back(memory.allocate(10 * kMiB));
  const auto large = memory.allocate(94 * kMiB / 10, kMiB);
  EXPECT_EQ(maker.blocks.size(), 8);
  EXPECT_LE(memory.allocated(), 100 * kMiB);
}

TEST(Limit, ForgetsARequestThatFails) {
  Memory memory;
  Maker maker(memory, 100 * kMiB);
  EXPECT_THROW(memory.run_out(60 * kMiB), std::bad_alloc);
  const auto large = memory.allocate(100 * kMiB);
  EXPECT_EQ(maker.calls, 0);
}

TEST(Limit, IsOnlyForItsDevice) {
  Memory memory;
  Maker maker(memory, kMiB);
  const auto elsewhere = memory.limit().serve(c10::Device(c10::kCUDA, 1), 2 * kMiB, [&] { return kMiB; });
  EXPECT_EQ(elsewhere, kMiB);
  EXPECT_EQ(maker.calls, 0);
}

}  // namespace
}  // namespace reprise
