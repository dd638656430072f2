#include "runtime/device/host_link.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "runtime/device/meter.h"

namespace reprise {
namespace {

std::function<void()>& delay() {
  static auto* function = new std::function<void()>;  // NOLINT: lives as long as the process
  return *function;
}

int& repeats() {
  static int times = 1;
  return times;
}

// The streams of a device on which its copies go on.
struct CopyStreams {
  c10::Stream down;
  c10::Stream up;
};

CopyStreams copy_streams(c10::Device device) {
  static std::mutex mutex;
  static auto* known = new std::map<c10::DeviceIndex, CopyStreams>;  // NOLINT: lives as long as the process
  const std::lock_guard lock(mutex);
  const auto found = known->find(device.index());
  if (found != known->end()) return found->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return known->emplace(device.index(), CopyStreams{guard.getNewStream(device), guard.getNewStream(device)})
      .first->second;
}

at::Tensor host_bytes(const HostBlock& block, std::int64_t offset, std::int64_t bytes) {
  if (offset < 0 || offset + bytes > block.bytes()) throw InternalError("a copy outside of the host's block");
  return at::from_blob(block.data() + offset, {bytes}, at::TensorOptions().dtype(at::kByte));
}

class DeviceLink final : public HostLink {
 public:
  DeviceLink(std::shared_ptr<HostBlock> block, std::shared_ptr<CopyLog> log)
      : block_(std::move(block)),
        log_(std::move(log)),
        guard_(block_->device().type()),
        streams_(copy_streams(block_->device())),
        first_(current()) {
    if (block_->free_after) block_->free_after->block(streams_.down);
  }

  // Nothing is freed under a copy that is going on.
  ~DeviceLink() override {
    if (stored_.empty()) return;
    try {
      wait_for_all();
      block_->free_after = done_on(first_);
    } catch (const c10::Error&) {  // the device is lost, and with it everything that could go wrong
    }
  }
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;

  void store(ValueId value, const at::Tensor& bytes, std::int64_t offset) override {
    follow(streams_.down);
    copy(CopyLog::Kind::kDown, streams_.down, host_bytes(*block_, offset, bytes.numel()), bytes);
    stored_.insert_or_assign(value, done_on(streams_.down));
  }

  void fetch(ValueId value, const at::Tensor& bytes, std::int64_t offset) override {
    follow(streams_.up);
    stored_.at(value).block(streams_.up);
    copy(CopyLog::Kind::kUp, streams_.up, bytes, host_bytes(*block_, offset, bytes.numel()));
    fetched_.insert_or_assign(value, done_on(streams_.up));
  }

  void wait_for_store(ValueId value) override { wait_for(stored_.at(value)); }
  void wait_for_fetch(ValueId value) override { wait_for(fetched_.at(value)); }
  void wait_for_all() override {
    for (const auto* copies : {&stored_, &fetched_}) {
      for (const auto& [value, done] : *copies) hold_back(done);
    }
  }

 private:
  [[nodiscard]] c10::Stream current() const { return guard_.getStream(block_->device()); }
  void hold_back(const c10::Event& copied) const {
    copied.block(current());
    if (current() != first_) copied.block(first_);
  }
  void follow(const c10::Stream& stream) const {
    done_on(current()).block(stream);
    if (current() != first_) done_on(first_).block(stream);
  }
  [[nodiscard]] c10::Event done_on(const c10::Stream& stream) const {
    c10::Event event(block_->device().type());
    event.record(stream);
    return event;
  }
  void copy(CopyLog::Kind kind, const c10::Stream& stream, const at::Tensor& target, const at::Tensor& source) {
    const c10::StreamGuard on_its_own(stream);
    if (delay()) delay()();
    noting(kind, stream, target.numel(), [&] {
      for (int i = 0; i < repeats(); ++i) target.copy_(source, /*non_blocking=*/true);
    });
  }
  void wait_for(const c10::Event& copied) {
    noting(CopyLog::Kind::kWait, current(), 0, [&] { hold_back(copied); });
  }
  template <typename Work>
  void noting(CopyLog::Kind kind, const c10::Stream& stream, std::int64_t bytes, const Work& work) {
    if (log_ == nullptr) return work();
    c10::Event begin(block_->device().type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(block_->device().type(), c10::EventFlag::BACKEND_DEFAULT);
    begin.record(stream);
    work();
    end.record(stream);
    log_->note(kind, std::move(begin), std::move(end), bytes);
  }

  std::shared_ptr<HostBlock> block_;
  std::shared_ptr<CopyLog> log_;
  c10::impl::VirtualGuardImpl guard_;
  CopyStreams streams_;
  c10::Stream first_;  // on which the step began
  std::map<ValueId, c10::Event> stored_;
  std::map<ValueId, c10::Event> fetched_;
};

// Copies a quarter of a gibibyte each way, alone and at the same time.
class Trial {
 public:
  explicit Trial(c10::Device device)
      : device_(device),
        streams_(copy_streams(device)),
        block_(device, 2 * kBytes),
        down_(at::empty({kBytes}, at::TensorOptions().dtype(at::kByte).device(device))),
        up_(at::empty_like(down_)) {}

  // The median of a few rounds.
  [[nodiscard]] double seconds(bool down, bool up) {
    std::vector<double> rounds;
    for (int round = 0; round < kRounds; ++round) {
      guard_.synchronizeDevice(device_.index());
      const auto begin = std::chrono::steady_clock::now();
      if (down) copy(streams_.down, host_bytes(block_, 0, kBytes), down_);
      if (up) copy(streams_.up, up_, host_bytes(block_, kBytes, kBytes));
      guard_.synchronizeDevice(device_.index());
      rounds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::ranges::sort(rounds);
    return rounds[rounds.size() / 2];
  }

  static std::int64_t rate(double seconds) { return static_cast<std::int64_t>(static_cast<double>(kBytes) / seconds); }

 private:
  static constexpr std::int64_t kBytes = 256 << 20;
  static constexpr int kRounds = 5;

  static void copy(const c10::Stream& stream, const at::Tensor& target, const at::Tensor& source) {
    const c10::StreamGuard on_its_own(stream);
    target.copy_(source, /*non_blocking=*/true);
  }

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_{device_.type()};
  CopyStreams streams_;
  HostBlock block_;
  at::Tensor down_;
  at::Tensor up_;
};

}  // namespace

bool has_host_link(c10::Device device) { return device.is_cuda(); }

std::unique_ptr<HostLink> make_host_link(std::shared_ptr<HostBlock> block, std::shared_ptr<CopyLog> log) {
  return std::make_unique<DeviceLink>(std::move(block), std::move(log));
}

std::optional<CopyTimes> CopyLog::read() const {
  if (entries_.empty()) return std::nullopt;
  CopyTimes times;
  for (const Entry& entry : entries_) {
    if (!entry.end.query()) return std::nullopt;
    const auto ns = static_cast<std::int64_t>(1e6 * entry.begin.elapsedTime(entry.end));
    switch (entry.kind) {
      case Kind::kDown:
        times.down_ns += ns;
        times.down_bytes += entry.bytes;
        break;
      case Kind::kUp:
        times.up_ns += ns;
        times.up_bytes += entry.bytes;
        break;
      case Kind::kWait:
        times.wait_ns += ns;
        break;
    }
  }
  return times;
}

Link measure_link(c10::Device device) {
  Trial trial(numbered(device));
  const double down = trial.seconds(true, false), up = trial.seconds(false, true), both = trial.seconds(true, true);
  // If both take about as long as one after the other, the link goes one way at a time.
  const bool both_ways = both < 0.75 * (down + up);
  return {.down_bytes_per_s = Trial::rate(both_ways ? std::max(down, both) : down),
          .up_bytes_per_s = Trial::rate(both_ways ? std::max(up, both) : up),
          .both_ways = both_ways};
}

void delay_copies(std::function<void()> function) { delay() = std::move(function); }
void repeat_copies(int times) { repeats() = times; }

}  // namespace reprise
