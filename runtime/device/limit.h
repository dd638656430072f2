// What an allocator may hand out, where others count what it has handed out.
#pragma once

#include <c10/core/Device.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "runtime/device/meter.h"

namespace reprise {

// No request takes the count of a device above the limit, also if several threads ask at once.
class Limit {
 public:
  // `allocated` returns what is allocated on a device now.
  explicit Limit(std::function<std::int64_t(c10::Device)> allocated) : allocated_on_(std::move(allocated)) {}

  // nullptr: there is no limit. The maker must outlive its use.
  void set(c10::Device device, std::int64_t bytes, RoomMaker* maker) {
    const std::lock_guard lock(mutex_);
    device_ = device;
    limit_bytes_ = bytes;
    maker_ = maker;
    taken_ = 0;
    watermark_ = maker == nullptr ? 0 : allocated();
  }

  // Serves a request by serve(), which returns memory that is given back when it goes out of scope.
  template <typename Serve>
  auto serve(c10::Device device, std::size_t bytes, Serve serve) {
    while (true) {
      const std::int64_t claimed = claim(device, bytes);
      auto served = [&] {
        try {
          return serve();
        } catch (...) {
          forget(claimed);
          throw;
        }
      }();
      const Excess excess = settle(claimed);
      if (excess.maker == nullptr) return served;
      // The allocator has handed out a larger block than was asked for. Room for all of it is needed.
      served = {};
      excess.maker->make_room(excess.allocated_bytes - allocated_now(), excess.bytes);
    }
  }

  // The highest count since this was last called, with what was taken away to make room and is to be kept in it.
  [[nodiscard]] std::int64_t take_watermark() {
    const std::lock_guard lock(mutex_);
    taken_ = 0;
    return std::exchange(watermark_, allocated());
  }
  void keep_in_watermark(std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    taken_ += bytes;
  }

 private:
  struct Excess {
    RoomMaker* maker = nullptr;  // who has to make room; none: there is no excess
    std::int64_t bytes = 0;
    std::int64_t allocated_bytes = 0;  // with what was served
  };

  // Counts a request before it is served. Returns by how much; 0: it is not limited.
  [[nodiscard]] std::int64_t claim(c10::Device device, std::size_t bytes) {
    const std::int64_t granted = granted_bytes(device, static_cast<std::int64_t>(bytes));
    while (true) {
      std::unique_lock lock(mutex_);
      if (maker_ == nullptr || device != device_ || bytes == 0) return 0;
      const std::int64_t missing = allocated() + claimed_ + granted - limit_bytes_;
      if (missing <= 0) {
        claimed_ += granted;
        return granted;
      }
      RoomMaker* maker = maker_;
      const std::int64_t requested = claimed_ + granted;
      lock.unlock();
      maker->make_room(requested, missing);
    }
  }
  [[nodiscard]] Excess settle(std::int64_t claimed) {
    if (claimed == 0) return {};
    const std::lock_guard lock(mutex_);
    claimed_ -= claimed;
    if (maker_ == nullptr) return {};
    const std::int64_t now = allocated();
    if (now > limit_bytes_) return {maker_, now - limit_bytes_, now};
    watermark_ = std::max(watermark_, now + taken_);
    return {};
  }
  void forget(std::int64_t claimed) {
    const std::lock_guard lock(mutex_);
    claimed_ -= claimed;
  }
  [[nodiscard]] std::int64_t allocated() const { return allocated_on_(device_); }
  [[nodiscard]] std::int64_t allocated_now() {
    const std::lock_guard lock(mutex_);
    return allocated();
  }

  std::function<std::int64_t(c10::Device)> allocated_on_;
  std::mutex mutex_;
  c10::Device device_ = c10::kCPU;
  std::int64_t limit_bytes_ = 0;
  std::int64_t claimed_ = 0;  // by requests that are being served
  std::int64_t watermark_ = 0;
  std::int64_t taken_ = 0;  // counts in the watermark
  RoomMaker* maker_ = nullptr;
};

}  // namespace reprise
