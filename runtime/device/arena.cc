#include "runtime/device/arena.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "reprise/error.h"

namespace reprise {
namespace {

std::atomic<bool> poisons{false};

std::int64_t round_down(std::int64_t bytes, std::int64_t alignment) { return bytes / alignment * alignment; }
std::int64_t round_up(std::int64_t bytes, std::int64_t alignment) {
  return round_down(bytes + alignment - 1, alignment);
}

// All blocks that exist. A block stays here until it is retired and nothing in it is live.
class Blocks {
 public:
  void add(std::shared_ptr<ArenaBlock> block) {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
    count_.store(blocks_.size(), std::memory_order_release);
  }
  // The block itself dies outside of the lock, because its memory is freed by allocators that have locks of their own.
  void remove(const std::shared_ptr<ArenaBlock>& block) {
    const std::lock_guard lock(mutex_);
    std::erase(blocks_, block);
    count_.store(blocks_.size(), std::memory_order_release);
  }
  [[nodiscard]] std::shared_ptr<ArenaBlock> find(const void* data) {
    if (count_.load(std::memory_order_acquire) == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(blocks_, [&](const auto& block) { return block->contains(data); });
    return found == blocks_.end() ? nullptr : *found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<ArenaBlock>> blocks_;
  std::atomic<std::size_t> count_{0};
};

Blocks& blocks() {
  static auto* all = new Blocks;  // NOLINT: memory may be freed at the very end of the process
  return *all;
}

struct ThreadGuide {
  c10::DeviceType device = c10::DeviceType::CPU;
  RequestGuide* guide = nullptr;
};
thread_local ThreadGuide current_guide;

void retire(const std::shared_ptr<ArenaBlock>& block) {
  if (block->retire()) blocks().remove(block);
}

}  // namespace

void* ArenaBlock::take(std::int64_t offset, std::int64_t bytes) {
  if (offset < 0 || bytes <= 0 || offset > bytes_ - bytes) return nullptr;
  const std::lock_guard lock(mutex_);
  if (retired_) return nullptr;
  const auto next = live_.lower_bound(offset);
  if (next != live_.end() && next->first < offset + bytes) return nullptr;
  if (next != live_.begin()) {
    const auto& [begin, size] = *std::prev(next);
    if (begin + size > offset) return nullptr;
  }
  live_.emplace_hint(next, offset, bytes);
  live_bytes_ += bytes;
  return memory_->base() + offset;
}

std::optional<std::int64_t> ArenaBlock::free_offset(std::int64_t begin, std::int64_t end, std::int64_t bytes,
                                                    std::int64_t alignment) const {
  const std::lock_guard lock(mutex_);
  std::int64_t offset = round_up(begin, alignment);
  auto next = live_.lower_bound(offset);
  if (next != live_.begin()) {
    const auto& [first, size] = *std::prev(next);
    offset = std::max(offset, round_up(first + size, alignment));
  }
  for (; next != live_.end() && next->first < offset + bytes; ++next) {
    offset = std::max(offset, round_up(next->first + next->second, alignment));
  }
  if (offset + bytes > std::min(end, bytes_)) return std::nullopt;
  return offset;
}

std::optional<std::int64_t> ArenaBlock::highest_free_offset(std::int64_t bytes, std::int64_t alignment) const {
  const std::lock_guard lock(mutex_);
  std::int64_t end = bytes_;
  for (auto range = live_.rbegin(); range != live_.rend(); ++range) {
    const std::int64_t offset = round_down(end - bytes, alignment);
    if (offset >= range->first + range->second) return offset;
    end = range->first;
  }
  const std::int64_t offset = round_down(end - bytes, alignment);
  if (end < bytes || offset < 0) return std::nullopt;
  return offset;
}

bool ArenaBlock::contains(const void* data) const {
  const auto* address = static_cast<const std::byte*>(data);
  return std::greater_equal<>()(address, memory_->base()) && std::less<>()(address, memory_->base() + bytes_);
}

bool ArenaBlock::is_live(const void* data) const {
  const std::lock_guard lock(mutex_);
  return contains(data) && live_.contains(static_cast<const std::byte*>(data) - memory_->base());
}

std::int64_t ArenaBlock::live_bytes() const {
  const std::lock_guard lock(mutex_);
  return live_bytes_;
}

bool ArenaBlock::give_back(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(static_cast<std::byte*>(data) - memory_->base());
  if (found == live_.end()) throw InternalError("memory of an arena was freed twice");
  if (poisons.load(std::memory_order_relaxed)) memory_->poison(static_cast<std::byte*>(data), found->second);
  live_bytes_ -= found->second;
  if (retired_) {
    memory_->drop(found->first, found->first + found->second);
    memory_->count_as(live_bytes_);
  }
  live_.erase(found);
  return retired_ && live_.empty();
}

bool ArenaBlock::retire() {
  const std::lock_guard lock(mutex_);
  retired_ = true;
  std::int64_t free_from = 0;
  for (const auto& [offset, bytes] : live_) {
    memory_->drop(free_from, offset);
    free_from = offset + bytes;
  }
  memory_->drop(free_from, bytes_);
  memory_->count_as(live_bytes_);
  return live_.empty();
}

std::int64_t Arena::excess(std::int64_t bytes, std::int64_t limit) const {
  return std::max<std::int64_t>(0, live_bytes() + bytes - limit);
}

std::optional<Arena::Seat> Arena::seat(std::int64_t bytes, std::optional<std::int64_t> limit) {
  if (block_ != nullptr && (!limit || block_->bytes() <= *limit)) {
    const auto offset = block_->highest_free_offset(bytes, alignment_bytes());
    if (offset) return Seat{block_, *offset};
  }
  if (limit && excess(bytes, *limit) > 0) return std::nullopt;
  // What is live now will be live again: a loop that adds up gradients comes back to this point with the new block.
  const std::int64_t live = live_bytes();
  const bool is_crowded = block_ != nullptr && live > 0 && block_->bytes() >= bytes;
  const std::int64_t more = is_crowded && was_crowded_ ? round_up(live, alignment_bytes()) + alignment_bytes() : 0;
  was_crowded_ = was_crowded_ || is_crowded;
  const bool has_room = !limit || excess(bytes + more, *limit) == 0;
  const std::int64_t size = has_room ? bytes + more : bytes;
  give_back();
  block_ = std::make_shared<ArenaBlock>(cpu_arena_memory(size), size);
  blocks().add(block_);
  return Seat{block_, round_down(size - bytes, alignment_bytes())};
}

void Arena::give_back() {
  if (block_ == nullptr) return;
  retire(block_);
  block_.reset();
}

GuideScope::GuideScope(c10::DeviceType device, RequestGuide* guide)
    : device_before_(current_guide.device), guide_before_(current_guide.guide) {
  current_guide = {device, guide};
}

GuideScope::~GuideScope() { current_guide = {device_before_, guide_before_}; }

RequestGuide* guide_of_thread(c10::DeviceType device) {
  return current_guide.device == device ? current_guide.guide : nullptr;
}

bool give_back_to_arena(void* data) {
  const std::shared_ptr<ArenaBlock> block = blocks().find(data);
  if (block == nullptr) return false;
  if (block->give_back(data)) blocks().remove(block);
  return true;
}

const void* arena_base_of(const void* data) {
  const std::shared_ptr<ArenaBlock> block = blocks().find(data);
  return block == nullptr ? nullptr : block->base();
}

bool has_arena(c10::Device device) { return device.is_cpu(); }

void poison_arenas(bool on) { poisons.store(on); }

}  // namespace reprise
