#include "runtime/session/caller.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/device/meter.h"
#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

constexpr std::int64_t kSmallOutputs = 1024;  // bytes: outputs up to this size are the loss itself
constexpr std::int64_t kNumbers = 32;         // numbers that a loop keeps from a step, in blocks of their own
constexpr std::int64_t kNumberBytes = 128;

// A model that returns its loss is assumed to be trained with that loss alone.
std::set<std::size_t> guess_absent(const std::vector<std::int64_t>& seed_bytes, const std::set<std::size_t>& optional,
                                   std::int64_t number_bytes) {
  std::set<std::size_t> absent;
  if (seed_bytes.empty() || std::ranges::min(seed_bytes) > number_bytes) return absent;
  for (const std::size_t i : optional) {
    if (seed_bytes[i] > number_bytes) absent.insert(i);
  }
  return absent;
}

}  // namespace

Caller::Caller(const Program& program, bool is_user) : op_(program.caller_op()), kept_value_(caller_value(program)) {
  for (const auto& seed : program.seeds) {
    seed_values_.push_back(seed ? seed->value : kNoValue);
    seed_bytes_.push_back(seed ? program.values[index(seed->value)].bytes : 0);
  }
  const std::vector<std::size_t> optional = reprise::optional_seeds(program);
  optional_seeds_.insert(optional.begin(), optional.end());
  if (!is_user) return;
  absent_seeds_ = guess_absent(seed_bytes_, optional_seeds_, granted_bytes(program.device, 8));
  // A loss over the outputs holds about two more of them for a moment, and keeps a few numbers.
  const std::int64_t outputs = planned_seed_bytes();
  workspace_bytes_ = outputs > kSmallOutputs ? 2 * outputs : 0;
  kept_bytes_ = kNumbers * std::max(kNumberBytes, granted_bytes(program.device, 1));
}

Caller Caller::at_size_of(const Program& program) const {
  Caller there(program, /*is_user=*/false);
  there.absent_seeds_ = absent_seeds_;
  const auto from = static_cast<double>(std::max<std::int64_t>(1, planned_seed_bytes()));
  const double growth = std::max(1.0, static_cast<double>(there.planned_seed_bytes()) / from);
  there.workspace_bytes_ = std::llround(std::ceil(static_cast<double>(workspace_bytes_) * growth));
  there.kept_bytes_ = std::llround(std::ceil(static_cast<double>(kept_bytes_) * growth));
  return there;
}

std::int64_t Caller::seed_bytes_without(const std::set<std::size_t>& absent) const {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < seed_bytes_.size(); ++i) {
    if (!absent.contains(i)) bytes += seed_bytes_[i];
  }
  return bytes;
}

// The first step may allocate what later ones do not. From the second step on, the maximum counts, and a seed that came
// once may come again.
bool Caller::learn(std::int64_t workspace_bytes, std::int64_t kept_bytes, std::set<std::size_t> absent_seeds) {
  if (steps_ >= 2) {
    workspace_bytes = std::max(workspace_bytes, workspace_bytes_);
    kept_bytes = std::max(kept_bytes, kept_bytes_);
  }
  if (steps_ > 0) std::erase_if(absent_seeds, [&](std::size_t i) { return !absent_seeds_.contains(i); });
  const bool changed =
      absent_seeds != absent_seeds_ || workspace_bytes != workspace_bytes_ || kept_bytes != kept_bytes_;
  workspace_bytes_ = workspace_bytes;
  kept_bytes_ = kept_bytes;
  absent_seeds_ = std::move(absent_seeds);
  ++steps_;
  return changed;
}

void Caller::apply(Costs& costs) const {
  costs.time_ns[index(op_)] = 0;
  costs.workspace_bytes[index(op_)] = workspace_bytes_;
  if (kept_value_ != kNoValue) costs.value_bytes[index(kept_value_)] = kept_bytes_;
  for (std::size_t i = 0; i < seed_values_.size(); ++i) {
    if (seed_values_[i] != kNoValue)
      costs.value_bytes[index(seed_values_[i])] = absent_seeds_.contains(i) ? 0 : seed_bytes_[i];
  }
}

}  // namespace reprise
