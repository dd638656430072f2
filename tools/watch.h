// Limits that the core does not know: a clock, and a person at the keyboard.
#pragma once

#include <chrono>

#include "reprise/solve.h"

namespace reprise::tools {

// While this object exists, it stops the planner after `seconds` (0: never) or at the first Ctrl-C, and shows progress
// on a terminal. The options must not be used afterwards.
class Watch {
 public:
  Watch(SolveOptions& options, double seconds);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  [[nodiscard]] double elapsed_seconds() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool progress_shown_ = false;
};

}  // namespace reprise::tools
