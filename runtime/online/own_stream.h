// The stream on which values are made and brought back.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

namespace reprise::online {

// Nothing on the CPU.
[[nodiscard]] inline std::optional<c10::Stream> current_stream(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// While this object exists, the thread works on the given stream. Its own stream then waits for what was done.
class OnStream {
 public:
  explicit OnStream(const std::optional<c10::Stream>& stream) {
    if (!stream || current_stream(stream->device()) == stream) return;
    before_ = current_stream(stream->device());
    guard_.emplace(*stream);
  }
  ~OnStream() {
    if (!guard_) return;
    c10::Event done(before_->device_type());
    done.record(guard_->current_stream());
    guard_.reset();
    done.block(*before_);
  }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  std::optional<c10::Stream> before_;
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace reprise::online
