// A limit on what PyTorch's CUDA allocator hands out. The meter's functions for CUDA that need a place in front of it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "runtime/device/meter.h"

namespace reprise {

// Whether this build can set a limit: it needs the CUDA parts of libtorch and the headers of CUDA's runtime.
[[nodiscard]] bool has_cuda_limit();
void limit_cuda(c10::Device device, std::int64_t bytes, RoomMaker* maker);
[[nodiscard]] std::int64_t take_cuda_watermark();
void keep_in_cuda_watermark(std::int64_t bytes);

}  // namespace reprise
