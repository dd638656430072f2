// Repeats random numbers: saves the state of a device's generator, and runs something from a saved state.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace reprise {

[[nodiscard]] at::Tensor generator_state(at::Device device);
void set_generator_state(at::Device device, const at::Tensor& state);
// The bytes that generator_state() takes on `device` itself: 5,056 for the CPU's Mersenne Twister, none on CUDA.
[[nodiscard]] std::int64_t generator_state_bytes(at::Device device);

// Swaps a saved state in; the end of the scope swaps the current one back. Allocates no tensor.
class GeneratorReplay {
 public:
  GeneratorReplay(at::Device device, const at::Tensor& saved);
  ~GeneratorReplay();
  GeneratorReplay(const GeneratorReplay&) = delete;
  GeneratorReplay& operator=(const GeneratorReplay&) = delete;

 private:
  struct Saved;
  at::Generator generator_;
  std::unique_ptr<Saved> current_;
};

}  // namespace reprise
