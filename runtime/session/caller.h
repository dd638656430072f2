// What the caller does between forward and backward. It is guessed at first, measured at every step, and planned for.
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
  // `is_user` says whether the user's code runs there. If the loss is inside the step, nothing happens between the two.
  Caller(const Program& program, bool is_user);

  // What this caller is known to need, for a step of another size: it grows with the gradients that it gives.
  [[nodiscard]] Caller at_size_of(const Program& program) const;

  // Learns from a step: bytes that the caller used for a moment, bytes that it kept, and seeds that it did not give.
  // Returns whether this changes what has to be planned for.
  bool learn(std::int64_t workspace_bytes, std::int64_t kept_bytes, std::set<std::size_t> absent_seeds);
  // Writes what has to be planned for into the costs of a step.
  void apply(Costs& costs) const;

  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] std::int64_t kept_bytes() const { return kept_bytes_; }
  [[nodiscard]] const std::set<std::size_t>& absent_seeds() const { return absent_seeds_; }
  [[nodiscard]] int steps() const { return steps_; }  // measured
  // Bytes of the seeds that are planned for, and of those that the caller gave.
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
