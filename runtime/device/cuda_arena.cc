// An arena on CUDA: a forwarding allocator in front of PyTorch's, and a block that is one request to PyTorch's.
//
// Everything but hand-outs and frees of arena memory goes through, so statistics, snapshots, graphs and pools stay
// PyTorch's. A request costs one more read of a thread-local variable, a free one more look at the list of blocks. What
// only some releases of libtorch have is declared without `override` and forwarded where it exists.
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "runtime/device/arena.h"
#include "runtime/device/meter.h"

// A header of libtorch calls this in a function that the front replaces. Nobody has to link CUDA's runtime for that.
#pragma weak cudaMemGetInfo

namespace reprise {
namespace {

namespace cache = c10::cuda::CUDACachingAllocator;
using c10::cuda::CUDAStream;

// Memory of an arena that other streams read or write. The compute stream waits for them when it is freed.
class OtherStreams {
 public:
  void add(void* data, const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    streams_[data].push_back(stream);
    any_.store(true, std::memory_order_release);
  }
  // The id is that of the stream whose calls are served from the block.
  void wait_for(void* data, c10::StreamId compute_id) {
    if (!any_.load(std::memory_order_acquire)) return;
    std::vector<c10::Stream> streams;
    {
      const std::lock_guard lock(mutex_);
      const auto found = streams_.find(data);
      if (found == streams_.end()) return;
      streams = std::move(found->second);
      streams_.erase(found);
    }
    for (const c10::Stream& stream : streams) {
      const c10::Stream compute(c10::Stream::UNSAFE, stream.device(), compute_id);
      if (stream == compute) continue;
      c10::Event done(c10::kCUDA);
      done.record(stream);
      done.block(compute);
    }
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::map<void*, std::vector<c10::Stream>> streams_;
};

class Front final : public cache::CUDAAllocator {
 public:
  explicit Front(cache::CUDAAllocator* base) : base_(base) {}

  static Front*& instance() {
    static Front* front = nullptr;  // lives as long as the process: blocks may be freed at its very end
    return front;
  }
  [[nodiscard]] cache::CUDAAllocator& base() const { return *base_; }

  // -- Requests and frees.

  c10::DataPtr allocate(size_t bytes) override {
    RequestGuide* guide = guide_of_thread(c10::kCUDA);
    if (void* data = taken(guide, bytes)) {
      return {data, data, &Front::release, c10::Device(c10::kCUDA, c10::cuda::current_device())};
    }
    c10::DataPtr served = base_->allocate(bytes);
    if (served.get() == nullptr) return served;
    // All that the front hands out has the deleter that raw_deleter() names.
    (void)served.compare_exchange_deleter(base_->raw_deleter(), &Front::release);
    if (guide != nullptr) guide->was_served(served.get(), static_cast<std::int64_t>(bytes));
    return served;
  }
  void* raw_alloc(size_t bytes) override {
    RequestGuide* guide = guide_of_thread(c10::kCUDA);
    if (void* data = taken(guide, bytes)) return data;
    void* served = base_->raw_alloc(bytes);
    if (guide != nullptr && served != nullptr) guide->was_served(served, static_cast<std::int64_t>(bytes));
    return served;
  }
  // Such memory may be used on a stream that nobody waits for.
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return base_->raw_alloc_with_stream(bytes, stream);
  }
  void raw_delete(void* data) override { release(data); }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &Front::release; }
  void recordStream(const c10::DataPtr& data, CUDAStream stream) override {
    if (arena_base_of(data.get()) != nullptr) return others_.add(data.get(), stream.unwrap());
    base_->recordStream(data, stream);
  }
  void* getBaseAllocation(void* data, size_t* size) override {
    const void* block = arena_base_of(data);
    return base_->getBaseAllocation(block == nullptr ? data : const_cast<void*>(block), size);
  }
  cache::ShareableHandle shareIpcHandle(void* data) override {
    TORCH_CHECK(arena_base_of(data) == nullptr,
                "memory of Reprise's arena cannot be shared with another process: clone the tensor first");
    return base_->shareIpcHandle(data);
  }

  // -- Everything else is PyTorch's.

  void copy_data(void* to, const void* from, std::size_t count) const override { base_->copy_data(to, from, count); }
  bool initialized() override { return base_->initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { base_->emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return base_->getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { base_->resetAccumulatedStats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { base_->resetPeakStats(device); }
  void init(int devices) override { base_->init(devices); }
  double getMemoryFraction(c10::DeviceIndex device) override { return base_->getMemoryFraction(device); }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    base_->setMemoryFraction(fraction, device);
  }
  std::vector<cache::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex device) override {
    return base_->getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { base_->enable(value); }
  bool isEnabled() const override { return base_->isEnabled(); }
  void cacheInfo(c10::DeviceIndex device, size_t* largest) override { base_->cacheInfo(device, largest); }
  cache::SnapshotInfo snapshot(c10::MempoolId_t pool, bool include_traces) override {
    return base_->snapshot(pool, include_traces);
  }
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    base_->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    base_->endAllocateToPool(device, pool);
  }
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override { base_->releasePool(device, pool); }
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return base_->getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<cache::CUDAAllocator> allocator) override {
    base_->createOrIncrefPool(device, pool, std::move(allocator));
  }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return base_->checkPoolLiveAllocations(device, pool, expected);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override { return base_->getIpcDevPtr(std::move(handle)); }
  bool isHistoryEnabled() override { return base_->isHistoryEnabled(); }
  void recordHistory(bool enabled, cache::CreateContextFn recorder, size_t entries, cache::RecordContext when,
                     bool clear, const std::vector<std::string>& skipped) override {
    base_->recordHistory(enabled, recorder, entries, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& entries) override {
    base_->recordAnnotation(entries);
  }
  void pushCompileContext(std::string& text) override { base_->pushCompileContext(text); }
  void popCompileContext() override { base_->popCompileContext(); }
  void setUserMetadata(const std::string& text) override { base_->setUserMetadata(text); }
  std::string getUserMetadata() override { return base_->getUserMetadata(); }
  void attachOutOfMemoryObserver(cache::OutOfMemoryObserver observer) override {
    base_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(cache::AllocatorTraceTracker tracker) override {
    base_->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(c10::DeviceIndex from, c10::DeviceIndex to) override { base_->enablePeerAccess(from, to); }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t count, cudaStream_t stream,
                          bool with_peers) override {
    return base_->memcpyAsync(to, to_device, from, from_device, count, stream, with_peers);
  }
  std::shared_ptr<cache::AllocatorState> getCheckpointState(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return base_->getCheckpointState(device, pool);
  }
  cache::CheckpointDelta setCheckpointPoolState(c10::DeviceIndex device,
                                                std::shared_ptr<cache::AllocatorState> state) override {
    return base_->setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return base_->name(); }

  // -- What only some releases have.

  // NOLINTBEGIN(modernize-use-override)
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) {
    [&](auto& base) {
      if constexpr (requires { base.setUseOnOOM(device, pool, use); }) base.setUseOnOOM(device, pool, use);
    }(*base_);
  }
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) {
    [&](auto& base) {
      if constexpr (requires { base.setNoSplit(device, pool); }) base.setNoSplit(device, pool);
    }(*base_);
  }
  void markCaptureBegin(c10::DeviceIndex device) {
    [&](auto& base) {
      if constexpr (requires { base.markCaptureBegin(device); }) base.markCaptureBegin(device);
    }(*base_);
  }
  void markCaptureEnd(c10::DeviceIndex device) {
    [&](auto& base) {
      if constexpr (requires { base.markCaptureEnd(device); }) base.markCaptureEnd(device);
    }(*base_);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) {
    return [](auto& base, c10::DeviceIndex of) -> std::pair<size_t, size_t> {
      if constexpr (requires { base.getMemoryInfo(of); }) {
        return base.getMemoryInfo(of);
      } else {
        return {};
      }
    }(*base_, device);
  }
  using RejectionObserver = std::function<void(int64_t, size_t, size_t, size_t)>;
  void attachOomRejectionObserver(RejectionObserver observer) {
    [](auto& base, RejectionObserver& given) {
      if constexpr (requires { base.attachOomRejectionObserver(std::move(given)); }) {
        base.attachOomRejectionObserver(std::move(given));
      }
    }(*base_, observer);
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* data) {
    return [](auto& base, const void* given) -> std::shared_ptr<c10::GatheredContext> {
      if constexpr (requires { base.getContextForPointer(given); }) {
        return base.getContextForPointer(given);
      } else {
        return nullptr;
      }
    }(*base_, data);
  }
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) {
    return [](auto& base, size_t size, void* at) -> c10::DataPtr {
      if constexpr (requires { base.allocateWithAddress(size, at); }) {
        return base.allocateWithAddress(size, at);
      } else {
        TORCH_CHECK(false, "this libtorch cannot allocate at an address");
      }
    }(*base_, bytes, address);
  }
  // NOLINTEND(modernize-use-override)

 private:
  void* taken(RequestGuide* guide, size_t bytes) {
    if (guide == nullptr) return nullptr;
    void* data = guide->take(static_cast<std::int64_t>(bytes));
    if (data != nullptr) compute_.store(c10::cuda::getCurrentCUDAStream().id(), std::memory_order_relaxed);
    return data;
  }
  static void release(void* data) {
    Front& front = *instance();
    if (RequestGuide* guide = guide_of_thread(c10::kCUDA)) guide->will_be_freed(data);
    if (arena_base_of(data) == nullptr) return front.base_->raw_delete(data);
    front.others_.wait_for(data, front.compute_.load(std::memory_order_relaxed));
    (void)give_back_to_arena(data);
  }

  cache::CUDAAllocator* base_;
  OtherStreams others_;
  std::atomic<c10::StreamId> compute_{0};  // the stream of the latest request
};

class CudaBlock final : public ArenaMemory {
 public:
  CudaBlock(c10::Device device, std::int64_t bytes) : device_(device) {
    const c10::DeviceGuard on_device(device);
    Front::instance()->base().emptyCache({0, 0});  // what steps without an arena have left
    base_ = static_cast<std::byte*>(Front::instance()->base().raw_alloc(static_cast<std::size_t>(bytes)));
  }
  ~CudaBlock() override {
    const c10::DeviceGuard on_device(device_);
    Front::instance()->base().raw_delete(base_);
  }
  CudaBlock(const CudaBlock&) = delete;
  CudaBlock& operator=(const CudaBlock&) = delete;

  [[nodiscard]] std::byte* base() const override { return base_; }
  [[nodiscard]] bool can_shrink() const override { return false; }
  void drop(std::int64_t /*begin*/, std::int64_t /*end*/) override {}
  void count_as(std::int64_t /*bytes*/) override {}
  void poison(std::byte* data, std::int64_t bytes) override {
    at::from_blob(data, {bytes}, at::TensorOptions(at::kByte).device(device_)).fill_(0xff);
  }

 private:
  c10::Device device_;
  std::byte* base_ = nullptr;
};

}  // namespace

bool has_arena(c10::Device device) { return device.is_cpu() || device.is_cuda(); }

void install_arena(c10::Device device) {
  if (!has_arena(device)) throw InputError("there is no arena on " + device.str());
  install_meter();
  if (!device.is_cuda()) return;
  static std::once_flag once;
  std::call_once(once, [] {
    auto* front = new Front(cache::get());  // NOLINT: see instance()
    Front::instance() = front;
    cache::allocator.store(front);
    c10::SetAllocator(c10::kCUDA, front, /*priority=*/255);
  });
}

std::unique_ptr<ArenaMemory> cuda_arena_memory(c10::Device device, std::int64_t bytes) {
  return std::make_unique<CudaBlock>(device, bytes);
}

}  // namespace reprise

namespace c10 {
namespace {

// PyTorch calls this before it takes more memory from the device, under a lock of its own that the same thread may take
// again.
class IdleArenas final : public FreeMemoryCallback {
 public:
  bool Execute() override { return reprise::give_back_idle_arenas(kCUDA); }
};

REGISTER_FREE_MEMORY_CALLBACK(reprise_idle_arenas, IdleArenas)

}  // namespace
}  // namespace c10
