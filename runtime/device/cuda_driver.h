// Functions of CUDA's driver, found when they are first used: a build does not need its headers, nor a machine a GPU.
#pragma once

#include <string>

namespace reprise {

class CudaDriver {
 public:
  // Throws InputError if there is no driver.
  static const CudaDriver& instance();

  template <typename Function>
  [[nodiscard]] Function find(const char* name) const {
    return reinterpret_cast<Function>(address_of(name));  // NOLINT: this is how dlsym is used
  }
  // Throws InputError, with the driver's text, if a result is not success: "CUDA cannot <what>: <text>".
  void check(int result, const std::string& what) const;

 private:
  CudaDriver();
  [[nodiscard]] void* address_of(const char* name) const;

  void* library_;
  int (*text_)(int, const char**) = nullptr;
};

}  // namespace reprise
