// The linear-time search behind dynamic_chain.h and live_chain.h.
//
// Problem: T(n) = base,  T(i) = d_i + min over i < j <= n of max(T(j), U(i, j));  wanted: T(0) and the chain of best j.
// U(i, j) is the memory of the segment between the checkpoints i and j, and must only grow with the segment:
//
//   U(i, j) <= U(i, j + 1)   and   U(i, j) <= U(i - 1, j)
//
// Idea: go from right to left and keep the j that may still be best, T falling from left to right. A new j = i + 1 is
// nearer than all others, so it removes those whose T is no smaller. At the far end b, with a next to it: as soon as
// U(i, b) >= T(a), the segment to b costs at least what a costs, now and for every i further left, and b goes. If it
// stays, max(T(b), U(i, b)) < T(a), so b beats everything else that is left.
//
// Example, sizes 0 5 10 20 5 15 5 and base 5: at i = 4 the candidates are 5 (T = 35) and 6 (T = 5); U(4, 6) = 35 is no
// smaller than T(5), so 6 goes and T(4) = 5 + max(35, 20) = 40.
//
// Every j enters once and leaves once: O(n) time and memory, provided U(i, b) is kept up while i and b move left.
//
// Hong, Tsai, Wang, Liu, Wu, "GPU Memory Usage Optimization for Backward Propagation in Deep Network Training", 2025,
// has a linear bound for its own U; the removal test at the far end is ours and serves every U as above. Tested by
// tests/oracle/chain_peak_test.cc (the quadratic recurrence and all subsets).
#pragma once

#include <algorithm>
#include <concepts>
#include <memory>

#include "solve/chain/chain.h"

namespace reprise::detail {

// The maximum of values[left .. right] while both ends move left. Holds the indices that may still be the maximum, in
// a fixed array filled from its end; their values rise from left to right.
class WindowMaximum {
 public:
  explicit WindowMaximum(ByteSpan values)
      : values_(values),
        held_(std::make_unique_for_overwrite<std::uint32_t[]>(values.size())),
        front_(values.size()),
        back_(values.size()) {}

  void extend_left(std::uint32_t left) {
    while (front_ != back_ && values_[held_[front_]] <= values_[left]) ++front_;
    held_[--front_] = left;
  }

  // `right` is never less than the last `left`, and never more than at the call before.
  [[nodiscard]] std::int64_t maximum_until(std::uint32_t right) {
    while (held_[back_ - 1] > right) --back_;
    return values_[held_[back_ - 1]];
  }

 private:
  ByteSpan values_;
  std::unique_ptr<std::uint32_t[]> held_;
  std::size_t front_;
  std::size_t back_;
};

// The term U. `enter(i)` comes before any question about i, for i = n - 1 down to 0; b never rises.
template <typename S>
concept SegmentTerm = requires(S segment, std::uint32_t i, std::uint32_t b) {
  { segment.layers() } -> std::same_as<std::uint32_t>;
  { segment.checkpoint_bytes(i) } -> std::same_as<std::int64_t>;
  { segment.enter(i) } -> std::same_as<void>;
  { segment.bytes(i, b) } -> std::same_as<std::int64_t>;
};

// The j that may still be best, nearest first, with their T; an array filled from its end.
class ChainCandidates {
 public:
  struct Candidate {
    std::uint32_t index;
    std::int64_t peak_bytes;
  };

  explicit ChainCandidates(std::size_t most)
      : held_(std::make_unique_for_overwrite<Candidate[]>(most)), front_(most), back_(most) {}

  void push_nearest(Candidate candidate) {
    while (front_ != back_ && held_[front_].peak_bytes >= candidate.peak_bytes) ++front_;
    held_[--front_] = candidate;
  }
  void pop_farthest() { --back_; }
  [[nodiscard]] const Candidate& farthest() const { return held_[back_ - 1]; }
  // Whether the farthest has a rival whose T does not exceed `bytes`.
  [[nodiscard]] bool rival_within(std::int64_t bytes) const {
    return back_ - front_ >= 2 && bytes >= held_[back_ - 2].peak_bytes;
  }

 private:
  std::unique_ptr<Candidate[]> held_;
  std::size_t front_;
  std::size_t back_;
};

// Nearer checkpoints win ties: more of them, less to compute again.
template <SegmentTerm S>
[[nodiscard]] ChainAnswer least_chain_peak(S segment, std::int64_t base_bytes) {
  const std::uint32_t n = segment.layers();
  const auto next = std::make_unique_for_overwrite<std::uint32_t[]>(n);
  ChainCandidates candidates(n);
  std::int64_t peak = base_bytes;  // T(i + 1)
  for (std::uint32_t i = n; i-- > 0;) {
    candidates.push_nearest({i + 1, peak});
    segment.enter(i);
    std::int64_t bytes = segment.bytes(i, candidates.farthest().index);
    while (candidates.rival_within(bytes)) {
      candidates.pop_farthest();
      bytes = segment.bytes(i, candidates.farthest().index);
    }
    peak = segment.checkpoint_bytes(i) + std::max(candidates.farthest().peak_bytes, bytes);
    next[i] = candidates.farthest().index;
  }
  ChainAnswer answer{.peak_bytes = peak};
  if (n == 0) return answer;
  for (std::uint32_t i = next[0]; i != n; i = next[i]) answer.checkpoints.push_back(i);
  return answer;
}

}  // namespace reprise::detail
