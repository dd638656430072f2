// Time and workspace of one call, measured with only its operands in memory, so that even a step that does not fit the
// device can be profiled.
#pragma once

#include <cstdint>

#include "runtime/program/captured_step.h"

namespace reprise {

struct Measurement {
  std::int64_t time_ns = 0;          // median
  std::int64_t workspace_bytes = 0;  // the highest above operands and results
  ResultLayouts outputs;             // as the device gives them
};

// Runs the op several times, until about `enough_ns` are spent. Operands hold made-up numbers: one half in floating
// point, and zero for integers and indices. The random generators end where they began. REQUIRES: the op is a call.
[[nodiscard]] Measurement measure(const Program& program, OpId op, std::int64_t enough_ns);
// The same without its time, by as few runs as that takes.
[[nodiscard]] Measurement measure_memory(const Program& program, OpId op);

}  // namespace reprise
