// Time of a call by what it computes and moves, where nothing was measured, or where measured times are too noisy.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

struct Rates {
  double flops_per_s;
  double bytes_per_s;
  std::int64_t floor_ns;  // a call takes at least this
};

// Of a plain CPU, and of an H200 in fp32 with TF32.
[[nodiscard]] Rates rates_of(c10::DeviceType device);

// By op; 0 of what is no call.
[[nodiscard]] std::vector<std::int64_t> roofline_ns(const Program& program, const Rates& rates);

}  // namespace reprise
