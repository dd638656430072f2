// Brute force over all sequences of a family: what each one costs, and the best within a budget. Sets are bit masks,
// which makes it fast enough for all graphs of six nodes; oracle_test compares it with reference.h. It shares no code
// with src/.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "support/dag.h"

namespace reprise::test {

using Mask = std::uint32_t;  // bit v: node v is in the set

struct Outcome {
  std::int64_t peak = 0;
  std::int64_t overhead = 0;
  std::int64_t kept_overhead = 0;  // the overhead if the last block is kept
  std::int64_t cached = 0;
  friend auto operator<=>(const Outcome&, const Outcome&) = default;
};

enum class Family { kAllLowerSets, kAncestorSets };

class Outcomes {
 public:
  Outcomes(const Dag& dag, Family family);

  [[nodiscard]] const std::vector<Mask>& family() const { return family_; }  // includes {} and V; ascending
  [[nodiscard]] std::size_t num_sequences() const { return num_sequences_; }
  // The memory M^(i) of every block pass of every sequence, without duplicates, ascending.
  [[nodiscard]] const std::vector<std::int64_t>& pass_values() const { return pass_values_; }
  [[nodiscard]] std::vector<std::int64_t> peaks() const;  // the peaks of all sequences, without duplicates, ascending

  [[nodiscard]] std::int64_t smallest_budget() const;
  // These return nothing if no sequence fits.
  [[nodiscard]] std::optional<std::int64_t> least_overhead(std::int64_t budget, bool keep_last) const;
  [[nodiscard]] std::optional<std::int64_t> most_overhead(std::int64_t budget, bool keep_last) const;
  // The sequence with the least cached bytes, and among these the least overhead: cached bytes and overhead.
  [[nodiscard]] std::optional<std::pair<std::int64_t, std::int64_t>> least_cache(std::int64_t budget,
                                                                                 bool keep_last) const;

  // The cost of a sequence L_1 .. L_k = V.
  [[nodiscard]] Outcome outcome(const std::vector<Mask>& sequence) const;

 private:
  struct Constants {  // what the definitions say about one lower set
    std::int64_t bytes = 0;
    std::int64_t time = 0;
    std::int64_t back = 0;
    Mask boundary = 0;
  };
  void add_constants(const Dag& dag, Mask lower_set);
  [[nodiscard]] std::int64_t sum(const std::vector<std::int64_t>& costs, Mask nodes) const;
  [[nodiscard]] Outcome step(Outcome so_far, Mask from, Mask to) const;
  void extend(Mask from, const Outcome& so_far);

  const Dag& dag_;
  Mask whole_;
  std::vector<Mask> family_;
  std::vector<Constants> constants_;  // by mask
  std::size_t num_sequences_ = 0;
  std::vector<Outcome> outcomes_;  // distinct
  std::vector<std::int64_t> pass_values_;
};

}  // namespace reprise::test
