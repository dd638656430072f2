#include "runtime/device/meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "runtime/device/arena.h"
#include "runtime/device/cuda_limit.h"

namespace reprise {

struct MeteredSince::Mark {
  std::uint64_t first = 0;                  // older blocks count only if they were added
  std::int64_t unseen_bytes = 0;            // of older blocks that exist and were not added
  std::unordered_set<const void*> added{};  // older blocks
};

namespace {

// Keeps data() == context(), which the raw interface of allocators requires; sizes are looked up by address.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* base) : base_(base) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (due_to_fail()) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "an allocation of ", bytes, " bytes was made to fail for a test");
    }
    RequestGuide* guide = guide_of_thread(c10::kCPU);
    if (guide == nullptr) return served(bytes);
    if (void* data = guide->take(static_cast<std::int64_t>(bytes))) {
      return {data, data, &CountingAllocator::release, c10::Device(c10::kCPU)};
    }
    c10::DataPtr result = served(bytes);
    guide->was_served(result.get(), static_cast<std::int64_t>(bytes));
    return result;
  }

  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::release; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { base_->copy_data(dest, src, count); }

  [[nodiscard]] MeterReading read() {
    const std::lock_guard lock(mutex_);
    return {allocated_, peak_, allocated_};
  }
  void begin(MeteredSince::Mark& mark) {
    const std::lock_guard lock(mutex_);
    mark.first = next_;
    mark.unseen_bytes = allocated_;
    marks_.push_back(&mark);
  }
  void end(MeteredSince::Mark& mark) {
    const std::lock_guard lock(mutex_);
    std::erase(marks_, &mark);
  }
  [[nodiscard]] std::int64_t bytes_since(const MeteredSince::Mark& mark) {
    const std::lock_guard lock(mutex_);
    return allocated_ - mark.unseen_bytes;
  }
  // Memory in an arena brings its whole block.
  [[nodiscard]] bool add(MeteredSince::Mark& mark, const void* data) {
    const void* arena = arena_base_of(data);
    const std::lock_guard lock(mutex_);
    return arena == nullptr ? add(mark, blocks_, data) : add(mark, arenas_, arena);
  }
  void count(const void* begin, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = arenas_.try_emplace(begin, Block{0, next_});
    if (is_new) ++next_;
    resize(begin, found->second, bytes);
    if (bytes == 0) arenas_.erase(found);
  }
  [[nodiscard]] bool knows(const void* data) {
    const std::lock_guard lock(mutex_);
    return blocks_.contains(data) || arena_base_of(data) != nullptr;
  }
  [[nodiscard]] std::uint64_t number_of(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    return found == blocks_.end() ? 0 : found->second.number + 1;
  }
  void limit(std::int64_t bytes, RoomMaker* maker) {
    const std::lock_guard lock(mutex_);
    limit_bytes_ = bytes;
    maker_ = maker;
  }
  [[nodiscard]] std::int64_t take_watermark() {
    const std::lock_guard lock(mutex_);
    taken_ = 0;
    return std::exchange(watermark_, allocated_);
  }
  void keep_in_watermark(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    taken_ += bytes;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = allocated_;
  }
  [[nodiscard]] std::int64_t user_peak() {
    const std::lock_guard lock(mutex_);
    return user_peak_;
  }
  void reset_user_peak() {
    const std::lock_guard lock(mutex_);
    user_peak_ = allocated_;
  }
  void fail(std::int64_t nth) {
    const std::lock_guard lock(mutex_);
    fail_in_ = nth;
  }

  static CountingAllocator*& instance() {
    static CountingAllocator* meter = nullptr;  // lives as long as the process: blocks may be freed at its very end
    return meter;
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    std::uint64_t number = 0;  // in the order of allocation
  };
  using Counted = std::unordered_map<const void*, Block>;

  c10::DataPtr served(std::size_t bytes) {
    claim(static_cast<std::int64_t>(bytes));
    void* data = nullptr;
    try {
      data = base_->raw_allocate(bytes);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      allocated_ -= static_cast<std::int64_t>(bytes);
      throw;
    }
    c10::DataPtr result(data, data, &CountingAllocator::release, c10::Device(c10::kCPU));
    const std::lock_guard lock(mutex_);
    if (data != nullptr) blocks_.insert_or_assign(data, Block{bytes, next_++});
    note_height();
    return result;
  }
  // Counts a request before it is served, so that two threads cannot pass the limit together.
  void claim(std::int64_t bytes) {
    while (true) {
      std::unique_lock lock(mutex_);
      RoomMaker* maker = maker_;
      const std::int64_t missing = maker == nullptr ? 0 : allocated_ + bytes - limit_bytes_;
      if (missing <= 0 || bytes == 0) {
        allocated_ += bytes;
        return;
      }
      lock.unlock();
      maker->make_room(bytes, missing);
    }
  }
  static void release(void* data) {
    if (RequestGuide* guide = guide_of_thread(c10::kCPU)) guide->will_be_freed(data);
    if (give_back_to_arena(data)) return;
    CountingAllocator& meter = *instance();
    meter.forget(data);
    meter.base_->raw_deallocate(data);
  }
  void forget(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;  // a block of zero bytes
    resize(data, found->second, 0);
    blocks_.erase(found);
  }
  void note_height() {
    peak_ = std::max(peak_, allocated_);
    user_peak_ = std::max(user_peak_, allocated_);
    watermark_ = std::max(watermark_, allocated_ + taken_);
  }
  // Marks that are younger than a block count it only if it was added to them.
  void resize(const void* data, Block& block, std::int64_t bytes) {
    const std::int64_t less = static_cast<std::int64_t>(block.bytes) - bytes;
    block.bytes = static_cast<std::size_t>(bytes);
    allocated_ -= less;
    note_height();
    for (auto mark = marks_.rbegin(); mark != marks_.rend() && block.number < (*mark)->first; ++mark) {
      const bool was_added = bytes == 0 ? (*mark)->added.erase(data) > 0 : (*mark)->added.contains(data);
      if (!was_added) (*mark)->unseen_bytes -= less;
    }
  }
  [[nodiscard]] static bool add(MeteredSince::Mark& mark, const Counted& counted, const void* data) {
    const auto found = counted.find(data);
    if (found == counted.end()) return false;
    const Block& block = found->second;
    if (block.number < mark.first && mark.added.insert(data).second) {
      mark.unseen_bytes -= static_cast<std::int64_t>(block.bytes);
    }
    return true;
  }
  [[nodiscard]] bool due_to_fail() {
    const std::lock_guard lock(mutex_);
    return fail_in_ > 0 && --fail_in_ == 0;
  }

  c10::Allocator* base_;
  std::mutex mutex_;
  Counted blocks_;
  Counted arenas_;  // by the beginning of a block
  std::uint64_t next_ = 0;
  std::vector<MeteredSince::Mark*> marks_;  // oldest first
  std::int64_t allocated_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t user_peak_ = 0;
  std::int64_t watermark_ = 0;
  std::int64_t taken_ = 0;  // counts in the watermark
  std::int64_t fail_in_ = 0;
  std::int64_t limit_bytes_ = 0;
  RoomMaker* maker_ = nullptr;  // none: no limit
};

c10::DeviceAllocator& device_allocator(c10::Device device) {
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (allocator == nullptr) throw InputError(device.str() + " has no allocator that counts what it hands out");
  return *allocator;
}

CountingAllocator& cpu_meter() {
  install_meter();
  return *CountingAllocator::instance();
}

}  // namespace

c10::Device numbered(c10::Device device) {
  return device.is_cpu() || device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

void install_meter() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto* meter = new CountingAllocator(c10::GetCPUAllocator());  // NOLINT: see instance()
    CountingAllocator::instance() = meter;
    c10::SetCPUAllocator(meter, /*priority=*/255);
  });
}

MeterReading read_meter(c10::Device device) {
  if (device.is_cpu()) return cpu_meter().read();
  const auto stats = device_allocator(device).getDeviceStats(numbered(device).index());
  const auto& allocated = stats.allocated_bytes[0];
  return {allocated.current, allocated.peak, stats.reserved_bytes[0].current};
}

MeteredSince::MeteredSince() : mark_(std::make_unique<Mark>()) { cpu_meter().begin(*mark_); }
MeteredSince::~MeteredSince() { cpu_meter().end(*mark_); }
std::int64_t MeteredSince::bytes() const { return cpu_meter().bytes_since(*mark_); }
bool MeteredSince::add(const void* data) { return cpu_meter().add(*mark_, data); }

void reset_meter_peak(c10::Device device) {
  if (device.is_cpu()) {
    cpu_meter().reset_peak();
  } else {
    device_allocator(device).resetPeakStats(numbered(device).index());
  }
}

std::int64_t user_peak_bytes(c10::Device device) {
  return device.is_cpu() ? cpu_meter().user_peak() : read_meter(device).peak_bytes;
}

void reset_user_peak(c10::Device device) {
  if (device.is_cpu()) {
    cpu_meter().reset_user_peak();
  } else {
    reset_meter_peak(device);
  }
}

std::int64_t take_watermark(c10::Device device) {
  return device.is_cpu() ? cpu_meter().take_watermark() : take_cuda_watermark();
}

void keep_in_watermark(c10::Device device, std::int64_t bytes) {
  if (device.is_cpu()) {
    cpu_meter().keep_in_watermark(bytes);
  } else {
    keep_in_cuda_watermark(bytes);
  }
}

void split_blocks_exactly(c10::Device device) {
  if (!device.is_cuda()) return;
  const char* setting = std::getenv("PYTORCH_ALLOC_CONF");
  if (setting == nullptr || *setting == '\0') setting = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  std::string own = setting == nullptr ? "" : setting;
  if (own.find("expandable_segments") != std::string::npos || own.find("cudaMallocAsync") != std::string::npos) return;
  if (!own.empty()) own += ",";  // settings that are left out may return to their defaults
  c10::CachingAllocator::setAllocatorSettings(own + "expandable_segments:True");
}

std::int64_t granted_bytes(c10::Device device, std::int64_t bytes) {
  constexpr std::int64_t kBlock = 512;
  return device.is_cpu() ? bytes : (bytes + kBlock - 1) / kBlock * kBlock;
}

void count_block(const void* begin, std::int64_t bytes) { cpu_meter().count(begin, bytes); }

bool is_metered(const void* data) { return cpu_meter().knows(data); }
std::uint64_t number_of_block(const void* data) { return cpu_meter().number_of(data); }

void set_memory_limit(c10::Device device, std::int64_t bytes, RoomMaker* maker) {
  if (device.is_cpu()) {
    cpu_meter().limit(bytes, maker);
  } else if (device.is_cuda()) {
    limit_cuda(device, bytes, maker);
  } else {
    throw InputError("memory on " + device.str() + " cannot be limited: only on the CPU and on CUDA");
  }
}

void fail_allocation(std::int64_t nth) { cpu_meter().fail(nth); }

}  // namespace reprise
