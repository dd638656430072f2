// The time of a call from what it computes and moves, for calls that were not measured or whose measured times are too
// noisy.
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

// The rates of a plain CPU, or of an H200 in fp32 with TF32.
[[nodiscard]] Rates rates_of(c10::DeviceType device);

// What a collective takes. It is never measured by itself, because all processes would have to measure it at the same
// time.
[[nodiscard]] std::int64_t collective_ns(const ProgramOp& op, c10::DeviceType device);

// The same between `ranks` processes, each of which sends so many bytes a second.
[[nodiscard]] std::int64_t collective_ns(const ProgramOp& op, c10::DeviceType device, std::int64_t ranks,
                                         std::int64_t bytes_per_s);

// What a call takes by what it computes and moves, whichever is longer.
[[nodiscard]] std::int64_t roofline_ns(const ProgramOp& op, const Rates& rates);

// Times by op; 0 for an op that is not a call.
[[nodiscard]] std::vector<std::int64_t> roofline_ns(const Program& program, const Rates& rates);

}  // namespace reprise
