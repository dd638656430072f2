// What the caller does between forward and backward: guessed at first, measured at every step, planned for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "reprise/costs.h"
#include "runtime/program/program.h"

namespace reprise {

class Caller {
 public:
  // `is_user`: whether the user's code has its turn there. Where the loss is inside the step, nothing happens.
  Caller(const Program& program, bool is_user);

  // What a step had: bytes taken for a moment, bytes kept, and the seeds that did not come. Whether it changes what is
  // to be planned for.
  bool learn(std::int64_t workspace_bytes, std::int64_t kept_bytes, std::set<std::size_t> absent_seeds);
  // Writes what is to be planned for into the costs of a step.
  void apply(Costs& costs) const;

  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] std::int64_t kept_bytes() const { return kept_bytes_; }
  [[nodiscard]] const std::set<std::size_t>& absent_seeds() const { return absent_seeds_; }
  [[nodiscard]] int steps() const { return steps_; }  // measured
  // Of the seeds that are planned for; and of those that came.
  [[nodiscard]] std::int64_t planned_seed_bytes() const { return seed_bytes_without(absent_seeds_); }
  [[nodiscard]] std::int64_t seed_bytes_without(const std::set<std::size_t>& absent) const;
  [[nodiscard]] const std::set<std::size_t>& optional_seeds() const { return optional_seeds_; }

 private:
  OpId op_;
  ValueId kept_value_;
  std::vector<ValueId> seed_values_;
  std::vector<std::int64_t> seed_bytes_;
  std::set<std::size_t> optional_seeds_;
  std::int64_t workspace_bytes_ = 0;
  std::int64_t kept_bytes_ = 0;
  std::set<std::size_t> absent_seeds_;
  int steps_ = 0;
};

}  // namespace reprise
