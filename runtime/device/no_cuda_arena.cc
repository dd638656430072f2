// In the place of cuda_arena.cc, where libtorch or the headers of CUDA's runtime have no CUDA.
#include "reprise/error.h"
#include "runtime/device/arena.h"
#include "runtime/device/meter.h"

namespace reprise {

bool has_arena(c10::Device device) { return device.is_cpu(); }

void install_arena(c10::Device device) {
  if (!has_arena(device)) throw InputError("this build has no arena on " + device.str());
  install_meter();
}

std::unique_ptr<ArenaMemory> cuda_arena_memory(c10::Device device, std::int64_t /*bytes*/) {
  throw InternalError("this build has no arena on " + device.str());
}

}  // namespace reprise
