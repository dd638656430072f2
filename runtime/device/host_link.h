// Copies between a device's memory and the host's that go on beside the device's own work.
//
// Everything is queued: the CPU never waits. Whatever waits for a copy holds back two streams: the one that is current
// then, and the one that was current when the link was made, on which the step began and to which the allocator gives
// its memory back. Memory that a copy reads or writes must not be given back before. A link belongs to one step.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reprise/costs.h"
#include "reprise/ids.h"
#include "runtime/device/host_block.h"

namespace reprise {

// What the copies of a step took, and how long the device waited for them.
struct CopyTimes {
  std::int64_t wait_ns = 0;
  std::int64_t down_ns = 0;
  std::int64_t down_bytes = 0;
  std::int64_t up_ns = 0;
  std::int64_t up_bytes = 0;
};

// Notes when the copies and waits of a step began and ended on the device.
class CopyLog {
 public:
  enum class Kind : std::uint8_t { kDown, kUp, kWait };
  void note(Kind kind, c10::Event begin, c10::Event end, std::int64_t bytes) {
    entries_.push_back({kind, std::move(begin), std::move(end), bytes});
  }
  [[nodiscard]] bool is_empty() const { return entries_.empty(); }
  // Nothing while the device is not done, or if nothing was noted.
  [[nodiscard]] std::optional<CopyTimes> read() const;

 private:
  struct Entry {
    Kind kind;
    c10::Event begin;
    c10::Event end;
    std::int64_t bytes;
  };
  std::vector<Entry> entries_;
};

class HostLink {
 public:
  virtual ~HostLink() = default;

  // Begins to copy the bytes of a value to an offset of the block, once what is queued now is done.
  virtual void store(ValueId value, const at::Tensor& bytes, std::int64_t offset) = 0;
  // Begins to copy them back into other memory of the device.
  virtual void fetch(ValueId value, const at::Tensor& bytes, std::int64_t offset) = 0;
  // The streams go on after the copy of the value.
  virtual void wait_for_store(ValueId value) = 0;
  virtual void wait_for_fetch(ValueId value) = 0;
  // The streams go on after all copies that were begun.
  virtual void wait_for_all() = 0;
};

// Whether there is a way to the host's memory that is worth the name: on the CPU, memory is the host's already.
[[nodiscard]] bool has_host_link(c10::Device device);
// If there is a log, the step is noted there.
[[nodiscard]] std::unique_ptr<HostLink> make_host_link(std::shared_ptr<HostBlock> block, std::shared_ptr<CopyLog> log);

// Copies each way, alone and at the same time, for about a tenth of a second: the rates while copies go both ways, or,
// if the link goes one way at a time, each way alone. REQUIRES: has_host_link(device).
[[nodiscard]] Link measure_link(c10::Device device);

// For tests: called on the stream of a copy before every copy.
void delay_copies(std::function<void()> delay);
// For tests and benchmarks: every copy is made so many times, so that it takes that much longer; 1 to end this.
void repeat_copies(int times);

}  // namespace reprise
