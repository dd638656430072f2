// A limit on CUDA: an allocator in front of PyTorch's that asks for room before a request would pass it.
//
// Everything is PyTorch's: memory comes from its allocator with its deleter, so statistics, snapshots, graphs and pools
// stay what they are, and the front can be put in place and taken away while memory is in use. A request costs one look
// at the statistics while there is a limit, and nothing after it. What only some releases of libtorch have is declared
// without `override` and forwarded where it exists.
#include "runtime/device/cuda_limit.h"

#include <c10/core/Allocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "runtime/device/limit.h"

// A header of libtorch calls this in a function that the front replaces. Nobody has to link CUDA's runtime for that.
#pragma weak cudaMemGetInfo

namespace reprise {
namespace {

namespace cache = c10::cuda::CUDACachingAllocator;

// Memory from an allocator's raw interface until somebody takes it.
class RawMemory {
 public:
  RawMemory() = default;
  RawMemory(cache::CUDAAllocator& from, void* data) : from_(&from), data_(data) {}
  RawMemory(RawMemory&& other) noexcept : from_(other.from_), data_(std::exchange(other.data_, nullptr)) {}
  RawMemory& operator=(RawMemory&& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~RawMemory() {
    if (data_ != nullptr) from_->raw_delete(data_);
  }
  [[nodiscard]] void* release() { return std::exchange(data_, nullptr); }

 private:
  cache::CUDAAllocator* from_ = nullptr;
  void* data_ = nullptr;
};

class Front final : public cache::CUDAAllocator {
 public:
  explicit Front(cache::CUDAAllocator* base)
      : limit_([base](c10::Device device) { return base->getDeviceStats(device.index()).allocated_bytes[0].current; }),
        base_(base) {}

  [[nodiscard]] Limit& limit() { return limit_; }
  [[nodiscard]] cache::CUDAAllocator& base() const { return *base_; }

  // -- Requests.

  c10::DataPtr allocate(size_t bytes) override {
    return limit_.serve(current_device(), bytes, [&] { return base_->allocate(bytes); });
  }
  void* raw_alloc(size_t bytes) override {
    return limit_.serve(current_device(), bytes, [&] { return RawMemory(*base_, base_->raw_alloc(bytes)); }).release();
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return limit_
        .serve(current_device(), bytes, [&] { return RawMemory(*base_, base_->raw_alloc_with_stream(bytes, stream)); })
        .release();
  }

  // -- Everything else is PyTorch's.

  void raw_delete(void* data) override { base_->raw_delete(data); }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return base_->raw_deleter(); }
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override {
    base_->recordStream(data, stream);
  }
  void* getBaseAllocation(void* data, size_t* size) override { return base_->getBaseAllocation(data, size); }
  cache::ShareableHandle shareIpcHandle(void* data) override { return base_->shareIpcHandle(data); }
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
  [[nodiscard]] static c10::Device current_device() { return {c10::kCUDA, c10::cuda::current_device()}; }

  Limit limit_;
  cache::CUDAAllocator* base_;
};

// Lives as long as the process: others may still have its address.
Front& front() {
  static auto* front = new Front(cache::get());  // NOLINT
  return *front;
}

void put_in_place(cache::CUDAAllocator& allocator) {
  cache::allocator.store(&allocator);
  c10::SetAllocator(c10::kCUDA, &allocator, /*priority=*/255);
}

}  // namespace

bool has_cuda_limit() { return true; }

void limit_cuda(c10::Device device, std::int64_t bytes, RoomMaker* maker) {
  if (maker != nullptr && cache::get() != &front() && cache::get() != &front().base()) {
    throw InputError("another allocator has taken the place of PyTorch's since Reprise first limited " + device.str() +
                     ": set it before that");
  }
  front().limit().set(device, bytes, maker);
  put_in_place(maker == nullptr ? front().base() : front());
}

std::int64_t take_cuda_watermark() { return front().limit().take_watermark(); }
void keep_in_cuda_watermark(std::int64_t bytes) { front().limit().keep_in_watermark(bytes); }

}  // namespace reprise
