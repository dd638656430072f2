#include "solve/chain/rotor.h"

#include <algorithm>
#include <cmath>

#include "check.h"

namespace reprise::detail {
namespace {

constexpr double kNever = HUGE_VAL;
constexpr std::uint32_t kBlock = 8;

}  // namespace

// Rows of one t lie together, s rising: the right parts of all cuts of (s, t) are neighbours.
std::size_t RotorTable::part(Index s, Index t) const { return std::size_t{t} * (t + 1) / 2 + s; }

std::int64_t RotorTable::in_units(std::int64_t bytes) const { return (bytes + unit_bytes_ - 1) / unit_bytes_; }

// Inside, stages are numbered from 0.
RotorTable::RotorTable(std::span<const RotorStage> stages, std::int64_t input_bytes, std::int64_t memory_bytes,
                       std::int32_t units)
    : unit_bytes_(std::max<std::int64_t>(1, (memory_bytes + units - 1) / units)), input_units_(in_units(input_bytes)) {
  width_ = static_cast<std::size_t>(std::max<std::int64_t>(0, memory_bytes / unit_bytes_ - input_units_ + 1));
  forward_until_ = once_until_ = {0.0};
  for (const RotorStage& stage : stages) {
    stages_.push_back({.forward = static_cast<double>(stage.forward_ns),
                       .backward = static_cast<double>(stage.backward_ns),
                       .output = in_units(stage.output_bytes),
                       .saved = in_units(stage.saved_bytes),
                       .gradient = in_units(stage.gradient_bytes),
                       .forward_overhead = in_units(stage.forward_overhead_bytes),
                       .backward_overhead = in_units(stage.backward_overhead_bytes)});
    forward_until_.push_back(forward_until_.back() + stages_.back().forward);
    once_until_.push_back(once_until_.back() + stages_.back().forward + stages_.back().backward);
  }
  const std::size_t parts = stages.size() * (stages.size() + 1) / 2;
  times_.assign(parts * width_, kNever);
  parts_.resize(parts);
  const auto count = static_cast<Index>(stages.size());
  for (Index t = 0; t < count; ++t) note_limits(t);
  for (Index t = 0; t < count; t += kBlock) {
    for (Index s = t + kBlock; s > 0;) fill_block(s -= kBlock, t);
  }
}

// Notes what is known of the parts (s, t), for all s, before any time is known.
void RotorTable::note_limits(Index t) {
  const Stage& last = stages_[t];
  std::int64_t passing = 0;  // max of a_(j-1) + a_j + of_j over s < j < t
  std::int64_t all_saved = last.gradient + last.saved + std::max(last.forward_overhead, last.backward_overhead);
  parts_[part(t, t)].all_saved = all_saved;
  for (Index s = t; s-- > 0;) {
    const Stage& stage = stages_[s];
    const Stage& next = stages_[s + 1];
    if (s + 1 < t) passing = std::max(passing, stage.output + next.output + next.forward_overhead);
    all_saved = stage.saved + std::max(all_saved, least_beside_saved(s, t));
    Part& limits = parts_[part(s, t)];
    limits.all_saved = all_saved;
    limits.least_cut = last.gradient + std::max(stage.output + stage.forward_overhead, passing);
  }
}

// Parts with s and t in two blocks of stages. Cuts between the blocks come first and for the whole block: their rows
// are read once for many sums, as in a blocked product of matrices.
void RotorTable::fill_block(Index s_begin, Index t_begin) {
  const auto count = static_cast<Index>(stages_.size());
  const Index s_end = std::min(s_begin + kBlock, count);
  const Index t_end = std::min(t_begin + kBlock, count);
  for (Index c_begin = s_end; c_begin <= t_begin; c_begin += kBlock) {
    const Index c_end = std::min(c_begin + kBlock, t_begin + 1);
    for (Index s = s_begin; s < s_end; ++s) {
      for (Index t = t_begin; t < t_end; ++t) {
        for (Index c = c_begin; c < c_end; ++c) try_cut(s, c, t);
      }
    }
  }
  for (Index t = t_begin; t < t_end; ++t) {
    for (Index s = std::min(s_end, t + 1); s-- > s_begin;) {
      for (Index c = s + 1; c <= t; ++c) {
        if (c < s_end || c > t_begin) try_cut(s, c, t);
      }
      try_saving(s, t);
    }
  }
}

void RotorTable::try_cut(Index s, Index c, Index t) {
  const std::int64_t stored = stages_[c - 1].output;
  const Part& limits = parts_[part(s, t)];
  const std::int64_t begin =
      std::max({limits.least_cut, parts_[part(s, c - 1)].first, parts_[part(c, t)].first + stored});
  const std::int64_t end = std::min(limits.all_saved, static_cast<std::int64_t>(width_));
  const double advance = forward_until_[c] - forward_until_[s];
  const double* left = row(s, c - 1);
  const double* right = row(c, t);
  double* out = row(s, t);
  for (std::int64_t m = begin; m < end; ++m) out[m] = std::min(out[m], advance + right[m - stored] + left[m]);
}

std::int64_t RotorTable::least_beside_saved(Index s, Index t) const {
  const Stage& stage = stages_[s];
  return std::max(stages_[t].gradient + stage.forward_overhead, stage.gradient + stage.backward_overhead);
}

// After all cuts. Then the row is complete.
void RotorTable::try_saving(Index s, Index t) {
  const Stage& stage = stages_[s];
  const auto width = static_cast<std::int64_t>(width_);
  Part& limits = parts_[part(s, t)];
  double* out = row(s, t);
  if (s < t) {
    const double own = stage.forward + stage.backward;
    const double* rest = row(s + 1, t);
    for (std::int64_t m = stage.saved + least_beside_saved(s, t); m < limits.all_saved && m < width; ++m) {
      out[m] = std::min(out[m], own + rest[m - stage.saved]);
    }
  }
  const double once = once_until_[t + 1] - once_until_[s];
  for (std::int64_t m = limits.all_saved; m < width; ++m) out[m] = once;
  limits.first = std::find_if(out, out + width, [](double time) { return time != kNever; }) - out;
}

// The cut that made entry m of a part's row; s if it was made by saving all.
RotorTable::Index RotorTable::find_cut(Index s, Index t, std::int64_t m) const {
  const double time = row(s, t)[m];
  const Stage& stage = stages_[s];
  const std::int64_t rest = m - stage.saved;
  if (rest >= least_beside_saved(s, t) && stage.forward + stage.backward + row(s + 1, t)[rest] == time) return s;
  REPRISE_CHECK(m >= parts_[part(s, t)].least_cut);
  for (Index c = s + 1; c <= t; ++c) {
    const std::int64_t right = m - stages_[c - 1].output;
    if (right < 0) continue;
    if (forward_until_[c] - forward_until_[s] + row(c, t)[right] + row(s, c - 1)[m] == time) return c;
  }
  REPRISE_CHECK(false && "a table entry came from somewhere");
  return s;
}

std::vector<ChainAction> RotorTable::read_back(std::int64_t m) const {
  using Kind = ChainAction::Kind;
  struct Todo {
    Index s, t;
    std::int64_t units;
    bool backward_only;
  };
  std::vector<ChainAction> actions;
  std::vector<Todo> todo = {{0, static_cast<Index>(stages_.size()) - 1, m, false}};
  while (!todo.empty()) {
    const auto [s, t, units, backward_only] = todo.back();
    todo.pop_back();
    if (backward_only) {
      actions.push_back({Kind::kBackward, s + 1});
      continue;
    }
    const Index cut = s == t ? s : find_cut(s, t, units);
    if (cut == s) {
      actions.push_back({Kind::kForwardSaveAll, s + 1});
      todo.push_back({s, s, 0, true});
      if (s < t) todo.push_back({s + 1, t, units - stages_[s].saved, false});
      continue;
    }
    actions.push_back({Kind::kForwardKeepInput, s + 1});
    for (Index k = s + 1; k < cut; ++k) actions.push_back({Kind::kForwardDrop, k + 1});
    todo.push_back({s, cut - 1, units, false});
    todo.push_back({cut, t, units - stages_[cut - 1].output, false});
  }
  return actions;
}

std::optional<RotorAnswer> RotorTable::solve(std::int64_t memory_bytes) const {
  const std::int64_t m = std::min(memory_bytes / unit_bytes_ - input_units_, static_cast<std::int64_t>(width_) - 1);
  if (m < 0) return std::nullopt;
  if (stages_.empty()) return RotorAnswer{};
  const double time = row(0, static_cast<Index>(stages_.size()) - 1)[m];
  if (time == kNever) return std::nullopt;
  return RotorAnswer{.time_ns = static_cast<std::int64_t>(time), .actions = read_back(m)};
}

std::optional<std::int64_t> RotorTable::least_memory_bytes() const {
  if (width_ == 0) return std::nullopt;
  const std::int64_t m = stages_.empty() ? 0 : parts_[part(0, static_cast<Index>(stages_.size()) - 1)].first;
  if (m == static_cast<std::int64_t>(width_)) return std::nullopt;
  return (m + input_units_) * unit_bytes_;
}

std::optional<RotorAnswer> rotor(std::span<const RotorStage> stages, std::int64_t input_bytes,
                                 std::int64_t memory_bytes, std::int32_t units) {
  return RotorTable(stages, input_bytes, memory_bytes, units).solve(memory_bytes);
}

}  // namespace reprise::detail
