// Generated kernels in files: functions of a shared library for the CPU, and of a binary for CUDA's driver.
//
// A file is found by its name, which contains a hash of what is in it: beside a program that was read from a folder, or
// in kernels/ of the cache. It stays loaded as long as the process lives.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace reprise {

// The folder of the cache where generated kernels lie.
[[nodiscard]] std::filesystem::path kernel_folder();

// Writes a file there. Returns whether that was possible.
bool write_kernel(const std::string& file, std::string_view image);

// Where to look before the cache.
void add_kernel_folder(const std::filesystem::path& folder);

// How many threads run a CUDA kernel, and with how much shared memory.
struct LaunchGrid {
  std::array<std::uint32_t, 3> blocks{1, 1, 1};
  std::uint32_t threads = 1;
  std::uint32_t shared_bytes = 0;
};

class LoadedKernel {
 public:
  // Throws InputError if there is no such file, if it has no such function, or if the device cannot load it.
  [[nodiscard]] static const LoadedKernel& find(const std::string& file, const std::string& function,
                                                c10::Device device);

  // Each element of `arguments` is the address of one argument. On CUDA the kernel is queued on the current stream.
  void run(std::span<void*> arguments, const LaunchGrid& grid, c10::Device device) const;

 private:
  explicit LoadedKernel(void* address) : address_(address) {}

  void* address_;
};

}  // namespace reprise
