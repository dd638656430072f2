#include "solve/front.h"

#include <bit>
#include <iterator>
#include <utility>

#include "solve/lower_sets/formula.h"

namespace reprise::detail {
namespace {

std::uint64_t fingerprint(const Blocks& blocks) {
  std::uint64_t h = blocks.count;
  for (const std::uint32_t block : blocks.block) h = std::rotl((h ^ block) * 0x9E3779B97F4A7C15U, 29);
  return h;
}

}  // namespace

void Front::add(const Blocks& blocks) {
  if (!seen_.insert(fingerprint(blocks)).second) return;
  add_blocks(blocks, /*keep_last=*/true);
  add_blocks(blocks, /*keep_last=*/false);
}

void Front::add(std::span<const OpId> runs, const std::optional<Formula>& formula) {
  add_plan(problem_.plan(runs), formula);
}

void Front::add_blocks(const Blocks& blocks, bool keep_last) {
  add_plan(problem_.plan(blocks, keep_last, Expansion::kLean), formula(problem_.view(), blocks, keep_last));
}

void Front::add_plan(Plan plan, const std::optional<Formula>& formula) {
  const Simulation result = simulator_.run(plan);
  ++simulated_;
  add_if_not_beaten(result, std::move(plan), formula);
}

void Front::add_carrying(Plan plan, std::int64_t host_budget_bytes) {
  const Simulation result = simulator_.run(plan);
  ++simulated_;
  if (result.host_peak_bytes <= host_budget_bytes) add_if_not_beaten(result, std::move(plan), std::nullopt);
}

void Front::add_if_not_beaten(const Simulation& result, Plan plan, const std::optional<Formula>& formula) {
  if (result.time_ns == Simulator::kTooLong) return;
  const Point* rival = fastest(result.peak_bytes);
  if (rival != nullptr && rival->simulation.time_ns <= result.time_ns) return;
  auto it = points_.insert_or_assign(result.peak_bytes, Point{result, std::move(plan), formula}).first;
  for (++it; it != points_.end() && it->second.simulation.time_ns >= result.time_ns;) it = points_.erase(it);
}

const Front::Point* Front::fastest(std::int64_t budget_bytes) const {
  const auto above = points_.upper_bound(budget_bytes);
  return above == points_.begin() ? nullptr : &std::prev(above)->second;
}

}  // namespace reprise::detail
