// Counts what PyTorch's CPU allocator hands out, as its CUDA allocator does by itself: bytes allocated now, and the
// highest since the last reset. On CUDA it reads the caching allocator's own numbers.
//
// PyTorch has no such count for the CPU. The meter puts itself in front of the current CPU allocator at first use;
// blocks handed out before are not counted, and are freed as they would have been. Memory that an arena hands out
// counts as a part of its block, which counts as a whole for as long as it exists: it is not available to anybody else.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace reprise {

struct MeterReading {
  std::int64_t allocated_bytes = 0;  // CPU: since the meter was installed
  std::int64_t peak_bytes = 0;       // since the last reset
  std::int64_t reserved_bytes = 0;   // CUDA: what the caching allocator has taken from the device
};

// "cuda" without a number is the current device.
[[nodiscard]] c10::Device numbered(c10::Device device);

// May be called often; the first call for the CPU installs the meter.
void install_meter();
[[nodiscard]] MeterReading read_meter(c10::Device device);
void reset_meter_peak(c10::Device device);
// The highest count since whoever trains has reset it. Steps that measure themselves reset the other one only; on CUDA,
// where PyTorch has one for all, these are the same.
[[nodiscard]] std::int64_t user_peak_bytes(c10::Device device);
void reset_user_peak(c10::Device device);
// While there is a limit: the highest count since this was last called, whoever resets the peak meanwhile. What is
// taken away in between to make room can be made to count as if it was still there.
[[nodiscard]] std::int64_t take_watermark(c10::Device device);
void keep_in_watermark(c10::Device device, std::int64_t bytes);

// The part of what the meter counts on the CPU that was allocated since this object was made, and older blocks that
// were added. All of it is followed when it is freed.
class MeteredSince {
 public:
  MeteredSince();  // installs the meter
  ~MeteredSince();
  MeteredSince(const MeteredSince&) = delete;
  MeteredSince& operator=(const MeteredSince&) = delete;

  [[nodiscard]] std::int64_t bytes() const;
  // Counts the block that begins here, however old it is. False: the meter does not know it.
  [[nodiscard]] bool add(const void* data);

  struct Mark;  // the meter's side of it

 private:
  std::unique_ptr<Mark> mark_;
};

// Counts memory on the CPU that no request to its allocator has brought, such as the block of an arena: as so many
// bytes from now on, however they are used. 0: it is gone.
void count_block(const void* begin, std::int64_t bytes);

// Whether the meter counts the block that begins here.
[[nodiscard]] bool is_metered(const void* data);
// Which request, from 1 on, brought the block of the CPU's allocator that begins here. 0: there is none.
[[nodiscard]] std::uint64_t number_of_block(const void* data);

// Makes room on a device when a request would make the meter count more than a limit.
class RoomMaker {
 public:
  RoomMaker() = default;
  virtual ~RoomMaker() = default;
  RoomMaker(const RoomMaker&) = delete;
  RoomMaker& operator=(const RoomMaker&) = delete;

  // Frees some memory, or throws if it cannot. Called on the thread of the request, until there is room for it.
  virtual void make_room(std::int64_t requested_bytes, std::int64_t missing_bytes) = 0;
};
// From now on no request takes the device's count above the limit. nullptr: there is none. The maker must outlive its
// use. On CUDA one device at a time can have a limit. Throws InputError for a device that cannot have one.
void set_memory_limit(c10::Device device, std::int64_t bytes, RoomMaker* maker);

// How much a request for so many bytes counts: CUDA's allocator hands out blocks of 512 bytes.
[[nodiscard]] std::int64_t granted_bytes(c10::Device device, std::int64_t bytes);

// CUDA's allocator leaves up to 1 MiB of a free block unsplit, unless its segments are expandable; what is left over
// counts as allocated. This makes segments expandable for the whole process, unless the user's environment says
// otherwise.
void split_blocks_exactly(c10::Device device);

// For tests: the nth allocation on the CPU from now on fails as if memory had run out; 0 switches it off.
void fail_allocation(std::int64_t nth);

}  // namespace reprise
