// One block of memory from which a step is served at offsets that were planned beforehand.
//
//   Arena arena(device);                                   // one per model and device
//   const auto seat = arena.seat(bytes, limit);            // at the beginning of a step
//   const GuideScope scope(at::kCPU, &guide);              // around a call: `guide` says where each request goes
//   void* data = seat->block->take(seat->offset + 512, n); // nullptr if that memory is in use
//
// Nothing here trusts a plan. A block hands out no range that touches a live one, and it remembers what is live until
// the deleter of that memory has run, on whatever thread. Memory that outlives a step, such as a gradient, keeps its
// range for as long as somebody holds it, and the block exists until the last range is gone.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace reprise {

// By offset: how many bytes were asked for there.
using LiveRanges = std::map<std::int64_t, std::int64_t>;

// Where the bytes of a block come from. They are given back when this object dies.
class ArenaMemory {
 public:
  ArenaMemory() = default;
  virtual ~ArenaMemory() = default;
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  [[nodiscard]] virtual std::byte* base() const = 0;
  virtual void drop(std::int64_t begin, std::int64_t end) = 0;  // offsets
  virtual void count_as(std::int64_t bytes) = 0;                // from now on
  virtual void poison(std::byte* data, std::int64_t bytes) = 0;
};

// On the CPU, pages of the system, which are touched when they are first used and kept from then on. Throws
// c10::OutOfMemoryError if there is not so much memory.
[[nodiscard]] std::unique_ptr<ArenaMemory> cpu_arena_memory(std::int64_t bytes);
// Whether requests on the device can be served from an arena.
[[nodiscard]] bool has_arena(c10::Device device);

class ArenaBlock {
 public:
  ArenaBlock(std::unique_ptr<ArenaMemory> memory, std::int64_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}

  // Nothing if the range touches something live or does not lie in the block, or if the block is retired.
  [[nodiscard]] void* take(std::int64_t offset, std::int64_t bytes);
  // The lowest free offset in [begin, end) with so much room after it, at a multiple of the alignment.
  [[nodiscard]] std::optional<std::int64_t> free_offset(std::int64_t begin, std::int64_t end, std::int64_t bytes,
                                                        std::int64_t alignment) const;
  // The highest free offset with so much room after it, at a multiple of the alignment.
  [[nodiscard]] std::optional<std::int64_t> highest_free_offset(std::int64_t bytes, std::int64_t alignment) const;
  [[nodiscard]] bool is_live(const void* data) const;
  [[nodiscard]] std::int64_t live_bytes() const;
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool contains(const void* data) const;
  [[nodiscard]] const void* base() const { return memory_->base(); }

  // Ends a range, and returns whether that was the last one of a retired block.
  bool give_back(void* data);
  // Hands nothing out any more and gives back what is not live. Returns whether nothing is live.
  bool retire();

 private:
  std::unique_ptr<ArenaMemory> memory_;
  std::int64_t bytes_;
  mutable std::mutex mutex_;
  LiveRanges live_;
  std::int64_t live_bytes_ = 0;
  bool retired_ = false;
};

// The block of a model on one device, as large as its steps have needed so far.
class Arena {
 public:
  explicit Arena(c10::Device device) : device_(device) {}
  ~Arena() { give_back(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  struct Seat {
    std::shared_ptr<ArenaBlock> block;
    std::int64_t offset = 0;  // where the step's part begins
  };
  // A free part of the block, as high as possible, for a step that needs so many bytes. Blocks together, with what is
  // live in retired ones, must not take more than `limit` bytes. If the block is too small, or too much of it is live,
  // there is a new one. Nothing: the limit does not allow it, and everything is as it was.
  [[nodiscard]] std::optional<Seat> seat(std::int64_t bytes, std::optional<std::int64_t> limit);
  // By how much a seat for so many bytes would go over the limit.
  [[nodiscard]] std::int64_t excess(std::int64_t bytes, std::int64_t limit) const;
  // Retires the block.
  void give_back();

  [[nodiscard]] std::int64_t block_bytes() const { return block_ == nullptr ? 0 : block_->bytes(); }
  [[nodiscard]] std::int64_t live_bytes() const { return block_ == nullptr ? 0 : block_->live_bytes(); }
  [[nodiscard]] std::int64_t free_bytes() const { return block_bytes() - live_bytes(); }
  [[nodiscard]] std::int64_t alignment_bytes() const { return device_.is_cpu() ? 64 : 512; }

 private:
  c10::Device device_;
  std::shared_ptr<ArenaBlock> block_;
  bool was_crowded_ = false;  // a new block was needed because of what was live in the old one
};

// Says where the requests of one call go. The allocator of a device asks the guide of the thread on which a request
// comes, if there is one.
class RequestGuide {
 public:
  RequestGuide() = default;
  virtual ~RequestGuide() = default;
  RequestGuide(const RequestGuide&) = delete;
  RequestGuide& operator=(const RequestGuide&) = delete;

  [[nodiscard]] virtual void* take(std::int64_t bytes) = 0;     // nullptr: PyTorch's allocator serves it
  virtual void was_served(void* data, std::int64_t bytes) = 0;  // by PyTorch's allocator
  virtual void will_be_freed(void* data) = 0;                   // on this thread, whoever served it
};

class GuideScope {
 public:
  GuideScope(c10::DeviceType device, RequestGuide* guide);
  ~GuideScope();
  GuideScope(const GuideScope&) = delete;
  GuideScope& operator=(const GuideScope&) = delete;

 private:
  c10::DeviceType device_before_;
  RequestGuide* guide_before_;
};
[[nodiscard]] RequestGuide* guide_of_thread(c10::DeviceType device);

// Ends the range that begins here. False: it does not lie in an arena.
bool give_back_to_arena(void* data);
// The beginning of the block in which this address lies, or nullptr.
[[nodiscard]] const void* arena_base_of(const void* data);

// For tests: fills each range with ones when it is given back, so that a late reader sees NaN.
void poison_arenas(bool on);

}  // namespace reprise
