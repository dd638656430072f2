// Cheap cross sections of forward: what to keep so that no recomputation reaches far back.
//
// After each forward op, the values made so far that later forward ops read are a cross section: with these, everything
// later can be computed again. `kept(k)` divides forward into k stretches of equal time and keeps the smallest cross
// section near each division. On x(9) -> a(4) -> b(9) -> c(1) -> d(9), k = 2: {c}, or {a} when it is nearer.
//
// For low budgets: with everything dropped, the first demand would run the whole of forward again and hold it.
// Tested by tests/unit/solve/auto/priced_cut_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "solve/auto/step_model.h"

namespace reprise::detail {

class PrefixCuts {
 public:
  enum class Measure { kTime, kBytes };
  // `measure` says what the stretches have equal shares of: time, or bytes that are made.
  explicit PrefixCuts(const StepModel& model, Measure measure = Measure::kTime);
  // 1 for a value that belongs to one of the cross sections of k stretches.
  [[nodiscard]] ByValue<std::uint8_t> kept(std::uint32_t stretches) const;

 private:
  const StepModel& model_;
  ByValue<OpId> last_read_;      // the last forward op that reads it
  ByOp<std::int64_t> across_;    // of forward: bytes of the cross section after an op
  ByOp<std::int64_t> progress_;  // of forward: time or bytes up to its end
};

}  // namespace reprise::detail
