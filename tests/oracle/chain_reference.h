// Chains straight from their definitions: the costs of given checkpoints, all subsets, the quadratic recurrence, and
// two machines that carry out a plan or a schedule event by event. The code is slow and obvious, and shares only plain
// structs with src/solve/chain.
#pragma once

#include <optional>

#include "solve/chain/live_chain.h"
#include "solve/chain/rotor.h"
#include "support/random.h"

namespace reprise::test {

using Sizes = std::vector<std::int64_t>;
using detail::ChainAction;
using detail::Checkpoints;
using detail::LiveLayer;
using detail::RotorStage;

// Sizes d_0 .. d_n of one of seven kinds: small with zeros, wide, rising, falling, powers of two, no input, equal.
inline constexpr int kChainKinds = 7;
[[nodiscard]] Sizes random_sizes(Random& random, int kind, std::uint32_t layers);

// How the memory between two neighbouring checkpoints counts a gradient: never, as in the paper (a segment without
// layers in between has none), or always.
enum class Buffer { kNone, kLiteral, kAlways };
[[nodiscard]] std::int64_t static_cost(const Sizes& d, const Checkpoints& c, Buffer buffer);
[[nodiscard]] std::int64_t dynamic_cost(const Sizes& d, const Checkpoints& c, std::int64_t base);

// The least cost of all subsets of first .. last.
template <typename Cost>
[[nodiscard]] std::int64_t least_over_subsets(std::uint32_t first, std::uint32_t last, const Cost& cost) {
  const std::uint32_t count = last + 1 - first;
  std::optional<std::int64_t> best;
  for (std::uint32_t mask = 0; mask < 1U << count; ++mask) {
    Checkpoints c;
    for (std::uint32_t k = 0; k < count; ++k) {
      if ((mask >> k & 1U) != 0) c.push_back(first + k);
    }
    const std::int64_t value = cost(c);
    if (!best || value < *best) best = value;
  }
  return *best;
}

// The least peaks T(0) .. T(n) of all suffixes, by the quadratic recurrence.
[[nodiscard]] Sizes quadratic_peaks(const Sizes& d, std::int64_t base);

struct LiveInstance {
  std::vector<LiveLayer> layers{};
  std::int64_t input_bytes = 0;
  bool input_gradient = false;
};
[[nodiscard]] LiveInstance random_live(Random& random, std::uint32_t layers, bool growing);

// Allocates and frees as the runtime does, and returns the peak. Throws if a value is missing or left over.
[[nodiscard]] std::int64_t run_live(const LiveInstance& chain, const Checkpoints& checkpoints);

struct ScheduleRun {
  std::int64_t peak_bytes = 0;  // includes the chain's input
  std::int64_t time_ns = 0;
  std::int64_t advances = 0;  // forward runs that save nothing
  std::uint32_t most_stored = 0;
};
// Throws if an action lacks what it needs, or if backward has not reached the first stage at the end.
[[nodiscard]] ScheduleRun run_schedule(std::span<const RotorStage> stages, std::int64_t input_bytes,
                                       std::span<const ChainAction> actions);

// All schedules of the stages first .. last in which a stored value stays until its backward.
[[nodiscard]] std::vector<std::vector<ChainAction>> persistent_schedules(std::uint32_t first, std::uint32_t last);

}  // namespace reprise::test
