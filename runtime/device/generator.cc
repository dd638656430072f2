#include "runtime/device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <mutex>
#include <optional>

namespace reprise {
namespace {

at::Generator default_generator(at::Device device) { return at::globalContext().defaultGenerator(device); }

}  // namespace

at::Tensor generator_state(at::Device device) {
  at::Generator generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(at::Device device, const at::Tensor& state) {
  at::Generator generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

std::int64_t generator_state_bytes(at::Device device) {
  return device.is_cpu() ? static_cast<std::int64_t>(generator_state(device).storage().nbytes()) : 0;
}

// On the CPU the parts of the state, elsewhere a tensor of a few bytes in host memory.
struct GeneratorReplay::Saved {
  at::mt19937 engine;
  std::optional<float> next_float;
  std::optional<double> next_double;
  at::Tensor state;
};

GeneratorReplay::GeneratorReplay(at::Device device, const at::Tensor& saved)
    : generator_(default_generator(device)), current_(std::make_unique<Saved>()) {
  const std::lock_guard lock(generator_.mutex());
  if (device.is_cpu()) {
    auto* impl = at::check_generator<at::CPUGeneratorImpl>(generator_);
    current_->engine = impl->engine();
    current_->next_float = impl->next_float_normal_sample();
    current_->next_double = impl->next_double_normal_sample();
  } else {
    current_->state = generator_.get_state();
  }
  generator_.set_state(saved);
}

GeneratorReplay::~GeneratorReplay() {
  const std::lock_guard lock(generator_.mutex());
  if (current_->state.defined()) {
    generator_.set_state(current_->state);
    return;
  }
  auto* impl = at::check_generator<at::CPUGeneratorImpl>(generator_);
  impl->set_engine(current_->engine);
  impl->set_next_float_normal_sample(current_->next_float);
  impl->set_next_double_normal_sample(current_->next_double);
}

}  // namespace reprise
