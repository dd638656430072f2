#include "runtime/device/host_block.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "reprise/error.h"
#include "reprise/io.h"
#include "runtime/device/cuda_driver.h"
#include "runtime/device/meter.h"

namespace reprise {
namespace {

// By CUDA's driver: libtorch's own pinned memory comes in powers of two.
void pin(std::byte* data, std::int64_t bytes) {
  constexpr unsigned kPortable = 1;  // for all contexts
  const CudaDriver& cuda = CudaDriver::instance();
  const auto pin = cuda.find<int (*)(void*, std::size_t, unsigned)>("cuMemHostRegister_v2");
  cuda.check(pin(data, static_cast<std::size_t>(bytes), kPortable),
             "pin " + format_bytes(bytes) + " of the host's memory; a smaller host_budget may help");
}

void unpin(std::byte* data) { (void)CudaDriver::instance().find<int (*)(void*)>("cuMemHostUnregister")(data); }

// Pages come into being when they are touched, which takes longer than everything else.
void touch(std::byte* data, std::size_t bytes) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t workers = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 8);
  const std::size_t share = (bytes / workers + kPageBytes) / kPageBytes * kPageBytes;
  std::vector<std::thread> threads;
  for (std::size_t begin = 0; begin < bytes; begin += share) {
    threads.emplace_back([=] {
      for (std::size_t i = begin; i < std::min(bytes, begin + share); i += kPageBytes) data[i] = std::byte{0};
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

HostBlock::HostBlock(c10::Device device, std::int64_t bytes) : device_(numbered(device)), bytes_(bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const c10::DeviceGuard on_its_device(device_);
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw InputError("the host does not have " + format_bytes(bytes) + " for host_budget");
  (void)madvise(data, size, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(data);
  try {
    touch(data_, size);
    pin(data_, bytes);
  } catch (...) {
    munmap(data_, size);
    throw;
  }
}

HostBlock::~HostBlock() {
  try {
    const c10::DeviceGuard on_its_device(device_);
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
    unpin(data_);
  } catch (const std::exception&) {  // CUDA is shut down already at the end of the process
  }
  munmap(data_, static_cast<std::size_t>(bytes_));
}

}  // namespace reprise
