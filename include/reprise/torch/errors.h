// The kinds of errors when a step is captured or run. Every message says what is wrong, where, and what to do.
#pragma once

#include <cstdint>
#include <string>

#include "reprise/error.h"

namespace reprise {

// No plan fits the budget, and nothing ran. `smallest_budget_bytes()` would be enough; for a size of inputs that was
// refused before it was measured, no less is.
class InfeasibleBudget : public InputError {
 public:
  InfeasibleBudget(const std::string& message, std::int64_t budget_bytes, std::int64_t smallest_budget_bytes)
      : InputError(message), budget_bytes_(budget_bytes), smallest_budget_bytes_(smallest_budget_bytes) {}

  [[nodiscard]] std::int64_t budget_bytes() const { return budget_bytes_; }
  [[nodiscard]] std::int64_t smallest_budget_bytes() const { return smallest_budget_bytes_; }

 private:
  std::int64_t budget_bytes_;
  std::int64_t smallest_budget_bytes_;
};

// The caller holds more memory than this step's plan left room for.
class BudgetExceeded : public InputError {
 public:
  using InputError::InputError;
};

// The model or the training loop does something that Reprise refuses.
class Unsupported : public InputError {
 public:
  using InputError::InputError;
};

// Processes that communicate within a step do not run the same step.
class RanksDiffer : public InputError {
 public:
  using InputError::InputError;
};

// A tensor that backward reads was changed after forward.
class ModifiedInPlace : public InputError {
 public:
  using InputError::InputError;
};

}  // namespace reprise
