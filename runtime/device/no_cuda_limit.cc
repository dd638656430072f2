// In the place of cuda_limit.cc, where libtorch or the headers of CUDA's runtime have no CUDA.
#include "reprise/error.h"
#include "runtime/device/cuda_limit.h"

namespace reprise {

bool has_cuda_limit() { return false; }

void limit_cuda(c10::Device device, std::int64_t /*bytes*/, RoomMaker* maker) {
  if (maker == nullptr) return;
  throw InputError("Reprise was built without CUDA's allocator, so that memory on " + device.str() +
                   " cannot be limited: it found no CUDA in libtorch, or no cuda_runtime.h. Build it with both (the "
                   "configuration says which it found)");
}

std::int64_t take_cuda_watermark() { throw InternalError("this build cannot limit CUDA's memory"); }
void keep_in_cuda_watermark(std::int64_t /*bytes*/) { throw InternalError("this build cannot limit CUDA's memory"); }

}  // namespace reprise
