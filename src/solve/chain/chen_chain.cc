#include "solve/chain/chen_chain.h"

#include <algorithm>
#include <cmath>

#include "solve/chain/dynamic_chain.h"
#include "solve/chain/nested_schedule.h"

namespace reprise::detail {
namespace {

// 2^(-1/2), 2^(-3/10), .. 2^(1/2)
constexpr double kGrid[] = {0.7071067811865476, 0.8122523963562356, 0.9330329915368074,
                            1.0717734625362931, 1.2311444133449163, 1.4142135623730951};

// The least r with r * r >= n.
std::uint64_t root_above(std::uint64_t n) {
  auto r = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
  while (r * r < n) ++r;
  while (r > 0 && (r - 1) * (r - 1) >= n) --r;
  return r;
}

}  // namespace

Checkpoints chen_uniform(std::uint32_t layers) {
  Checkpoints checkpoints;
  if (layers == 0) return checkpoints;
  const std::uint64_t segments = root_above(layers);
  const std::uint64_t length = (layers + segments - 1) / segments;
  for (std::uint64_t k = length; k < layers; k += length) checkpoints.push_back(static_cast<std::uint32_t>(k));
  return checkpoints;
}

BalancedPlan chen_balanced(ByteSpan sizes, std::int64_t budget_bytes) {
  BalancedPlan plan;
  std::int64_t sum = 0;
  for (std::uint32_t k = 1; k < sizes.size(); ++k) {
    sum += sizes[k];
    if (sum <= budget_bytes) continue;
    if (k + 1 < sizes.size()) plan.checkpoints.push_back(k);
    plan.stored_bytes += sizes[k];
    plan.largest_bytes = std::max(plan.largest_bytes, sum);
    sum = 0;
  }
  return plan;
}

ChainAnswer chen_search(ByteSpan sizes, const PeakJudge& judge) {
  BalancedPlan plan = chen_balanced(sizes, 0);
  const double middle =
      std::sqrt(static_cast<double>(plan.stored_bytes)) * std::sqrt(static_cast<double>(plan.largest_bytes));
  ChainAnswer best{.peak_bytes = judge(plan.checkpoints), .checkpoints = plan.checkpoints};
  for (const double factor : kGrid) {
    plan = chen_balanced(sizes, static_cast<std::int64_t>(middle * factor));
    const std::int64_t peak = judge(plan.checkpoints);
    if (peak < best.peak_bytes) best = {peak, plan.checkpoints};
  }
  return best;
}

ChainAnswer chen_search(ByteSpan sizes) {
  return chen_search(sizes, [&](const Checkpoints& c) { return dynamic_peak(sizes, c, 2 * sizes.back()); });
}

std::vector<ChainAction> chen_recursive(std::uint32_t stages) {
  return nested_schedule(stages, stages, [](std::uint32_t count, std::uint32_t /*states*/) { return (count + 1) / 2; });
}

}  // namespace reprise::detail
