// Random training steps with their own backward ops and everything that a captured step can have: parameters, arriving
// and held values, `once` ops, several outputs, workspaces, in-place versions and updated buffers.
#pragma once

#include <cstdint>
#include <functional>

#include "reprise/costs.h"

namespace reprise::test {

// Draws a number from 0 .. bound-1, from a generator or from a fuzzer's bytes.
using Draw = std::function<std::int64_t(std::int64_t bound)>;

struct StepOptions {
  int forward_ops = 8;
  int backward_ops = 8;
};

[[nodiscard]] CostedGraph random_step(const StepOptions& options, const Draw& draw);

}  // namespace reprise::test
