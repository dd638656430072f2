// Pinned memory of the host, which a device reads and writes on its own.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace reprise {

// One piece, kept between steps.
class HostBlock {
 public:
  // Takes about a second for 3 GiB. Throws InputError if the host does not have it, or cannot pin it.
  HostBlock(c10::Device device, std::int64_t bytes);
  ~HostBlock();  // once the device no longer uses it
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] c10::Device device() const { return device_; }

  // The end of the step that used it last: the next one may be on another stream.
  std::optional<c10::Event> free_after{};

 private:
  c10::Device device_;
  std::int64_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace reprise
