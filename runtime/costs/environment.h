// Everything that the time and the workspace of a kernel depend on, apart from the call itself.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <utility>
#include <vector>

namespace reprise {

// Names and their current values: versions, the device, the flags that choose kernels.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> environment(c10::Device device);

}  // namespace reprise
