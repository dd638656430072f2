#include "solve/chain/revolve.h"

#include <algorithm>

#include "solve/chain/nested_schedule.h"

namespace reprise::detail {
namespace {

// r with beta(s, r - 1) < l <= beta(s, r), and beta(s, r - 1). For l, s >= 2 and s < l.
struct Repetition {
  std::uint64_t r;
  std::uint64_t before;
};

// No overflow: a product is formed only while beta < l < 2^32, and r > 1 only if s + 1 < l; then s + r <= 2^32.
Repetition repetition(std::uint64_t l, std::uint64_t s) {
  std::uint64_t r = 1;
  std::uint64_t before = 1;  // beta(s, 0)
  for (std::uint64_t beta = s + 1; beta < l; beta = before * (s + r) / r) {
    before = beta;
    ++r;
  }
  return {r, before};
}

// The smallest k that is best.
std::uint32_t best_cut(std::uint32_t stages, std::uint32_t states) {
  if (states <= 1) return stages - 1;
  const std::uint64_t l = stages;
  const std::uint64_t s = std::min(states, stages);
  const auto [r, before] = repetition(l, s);
  if (r == 1) return 1;
  const std::uint64_t two_before = before * (r - 1) / (s + r - 1);  // beta(s, r - 2)
  const std::uint64_t right_most = before * s / r;                  // beta(s - 1, r)
  return static_cast<std::uint32_t>(std::max(two_before, l > right_most ? l - right_most : 1));
}

}  // namespace

std::int64_t revolve_forward_runs(std::uint32_t stages, std::uint32_t states) {
  if (stages <= 1) return 0;
  const std::uint64_t l = stages;
  if (states <= 1) return static_cast<std::int64_t>(l * (l - 1) / 2);
  const std::uint64_t s = std::min(states, stages);
  const auto [r, before] = repetition(l, s);
  const std::uint64_t saved = r == 1 ? 1 : before * (s + r) / (s + 1);  // beta(s + 1, r - 1)
  return static_cast<std::int64_t>(r * l - saved);
}

std::vector<ChainAction> revolve_schedule(std::uint32_t stages, std::uint32_t states) {
  return nested_schedule(stages, states, best_cut);
}

}  // namespace reprise::detail
