// The state in which captured calls are run: on their device, below autograd, autocast and Python's dispatch modes, as
// they were when they were captured. (AOTAutograd itself runs the first step under a mode of its own.)
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace reprise {

struct CallGuards {
  explicit CallGuards(at::Device device)
      : device_guard(device.is_cpu() ? std::optional<at::Device>() : std::optional<at::Device>(device)) {}

  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::impl::ExcludeDispatchKeyGuard no_python{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
  at::NoGradGuard no_grad;
  c10::OptionalDeviceGuard device_guard;
};

}  // namespace reprise
