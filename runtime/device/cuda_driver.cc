#include "runtime/device/cuda_driver.h"

#include <dlfcn.h>

#include "reprise/error.h"

namespace reprise {

const CudaDriver& CudaDriver::instance() {
  static const CudaDriver driver;
  return driver;
}

CudaDriver::CudaDriver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
  if (library_ == nullptr) throw InputError("CUDA's driver (libcuda.so.1) cannot be loaded");
  text_ = find<decltype(text_)>("cuGetErrorString");
}

void* CudaDriver::address_of(const char* name) const {
  void* address = dlsym(library_, name);
  if (address == nullptr) throw InputError(std::string("CUDA's driver has no function ") + name);
  return address;
}

void CudaDriver::check(int result, const std::string& what) const {
  if (result == 0) return;
  const char* text = nullptr;
  text_(result, &text);
  throw InputError("CUDA cannot " + what + ": " + (text == nullptr ? "error " + std::to_string(result) : text));
}

}  // namespace reprise
