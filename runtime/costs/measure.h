// Time and workspace of one call, measured with only its operands in memory: a step that does not fit the device can
// be profiled all the same.
#pragma once

#include <cstdint>

#include "runtime/program/captured_step.h"

namespace reprise {

struct Measurement {
  std::int64_t time_ns = 0;          // median
  std::int64_t workspace_bytes = 0;  // highest above operands and results
  ResultLayouts outputs;             // as the device gives them
};

// Runs the op several times, and until about `enough_ns` are spent. Operands hold made-up numbers: floating point one
// half, integers and indices zero. The random generators end where they began.
// REQUIRES: the op is a call.
[[nodiscard]] Measurement measure(const Program& program, OpId op, std::int64_t enough_ns);

}  // namespace reprise
