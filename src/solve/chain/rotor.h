// Fastest schedule of a chain within a memory budget, stages of any size and time, each run as often as it pays.
//
// Stages 1 .. L, the loss being the last. Per stage: forward and backward time (uf, ub), output bytes a, bytes abar of
// all its backward reads (a among them), gradient bytes delta, and what forward and backward need beside (of, ob; ob
// covers the gradient of the input). K(s, t, m) is the least time to run stages s .. t forward and back within m, the
// input a_(s-1) being held and not counted, the gradient of t being counted:
//
//   K(s, s, m) = uf_s + ub_s                              if m >= delta_s + abar_s + max(of_s, ob_s), else never
//   K(s, t, m) = the smaller of
//     save all:    uf_s + K(s + 1, t, m - abar_s) + ub_s
//                  if m >= max(delta_t + abar_s + of_s, delta_s + abar_s + ob_s)
//     checkpoint:  min over s < c <= t of uf_s + .. + uf_(c-1) + K(c, t, m - a_(c-1)) + K(s, c - 1, m)
//                  if m >= delta_t + max(a_s + of_s, a_(j-1) + a_j + of_j for s < j < t)
//
// Answer: K(1, L, M - a_0). Best among schedules that hold a stored value until its backward.
//
// Example: three stages of a = 1, abar = 2, unit times. With plenty of memory all save: time 6. When abar no longer
// fits three times, a stage keeps its input only, and runs again after the backward of those behind it: time 7.
//
// Memory is counted in units, every size rounded up, so that a schedule never needs more than it says; fewer bytes than
// units make it exact. One table answers every budget up to the one it was made for. O(L^3 S) time and 4 L^2 S bytes at
// worst; no checkpoint is tried where all fits, and no sum is formed where a part is impossible. Times are doubles,
// exact below 2^53 ns.
//
// Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous chains", 2019. Tested by
// tests/unit/solve/chain/rotor_test.cc and tests/oracle/chain_schedule_test.cc (all persistent schedules).
#pragma once

#include <optional>

#include "solve/chain/chain.h"

namespace reprise::detail {

struct RotorStage {
  std::int64_t forward_ns = 0;
  std::int64_t backward_ns = 0;
  std::int64_t output_bytes = 0;             // a
  std::int64_t saved_bytes = 0;              // abar >= a
  std::int64_t gradient_bytes = 0;           // delta
  std::int64_t forward_overhead_bytes = 0;   // of
  std::int64_t backward_overhead_bytes = 0;  // ob, the gradient of the stage's input included
};

struct RotorAnswer {
  std::int64_t time_ns = 0;
  std::vector<ChainAction> actions{};
};

class RotorTable {
 public:
  // `memory_bytes`: the largest budget that will be asked for.
  RotorTable(std::span<const RotorStage> stages, std::int64_t input_bytes, std::int64_t memory_bytes,
             std::int32_t units = 500);

  // Returns nothing if no schedule fits.
  [[nodiscard]] std::optional<RotorAnswer> solve(std::int64_t memory_bytes) const;

  // The smallest budget with a schedule; nothing if the table's own budget has none.
  [[nodiscard]] std::optional<std::int64_t> least_memory_bytes() const;

  // Only the whole units of a budget count.
  [[nodiscard]] std::int64_t unit_bytes() const { return unit_bytes_; }

 private:
  struct Stage {  // sizes in units
    double forward, backward;
    std::int64_t output, saved, gradient, forward_overhead, backward_overhead;
  };
  struct Part {                  // limits of m
    std::int64_t least_cut = 0;  // from here on a checkpoint may be stored
    std::int64_t all_saved = 0;  // from here on everything is saved and runs once
    std::int64_t first = 0;      // from here on there is a schedule; past the row if there is none
  };
  using Index = std::uint32_t;

  [[nodiscard]] std::size_t part(Index s, Index t) const;
  [[nodiscard]] double* row(Index s, Index t) { return times_.data() + part(s, t) * width_; }
  [[nodiscard]] const double* row(Index s, Index t) const { return times_.data() + part(s, t) * width_; }
  [[nodiscard]] std::int64_t in_units(std::int64_t bytes) const;
  [[nodiscard]] std::int64_t least_beside_saved(Index s, Index t) const;
  void note_limits(Index t);
  void fill_block(Index s_begin, Index t_begin);
  void try_cut(Index s, Index c, Index t);
  void try_saving(Index s, Index t);
  [[nodiscard]] Index find_cut(Index s, Index t, std::int64_t m) const;
  [[nodiscard]] std::vector<ChainAction> read_back(std::int64_t m) const;

  std::int64_t unit_bytes_ = 1;
  std::int64_t input_units_ = 0;
  std::size_t width_ = 0;  // of a row: units 0 .. S
  std::vector<Stage> stages_;
  std::vector<double> forward_until_;  // sums of uf
  std::vector<double> once_until_;     // sums of uf + ub
  std::vector<double> times_;          // rows of K(s, t, .)
  std::vector<Part> parts_;
};

[[nodiscard]] std::optional<RotorAnswer> rotor(std::span<const RotorStage> stages, std::int64_t input_bytes,
                                               std::int64_t memory_bytes, std::int32_t units = 500);

}  // namespace reprise::detail
