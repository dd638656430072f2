#include "solve/chain/budget_chain.h"

#include <algorithm>
#include <tuple>

#include "solve/chain/dynamic_chain.h"

namespace reprise::detail {
namespace {

struct Partial {
  std::int64_t held_bytes;  // a
  std::int64_t time;        // w
  std::uint32_t from;       // the checkpoint before, and which of its partials
  std::uint32_t from_partial;
};

class BudgetSearch {
 public:
  BudgetSearch(ByteSpan sizes, std::span<const std::int64_t> times, std::int64_t base_bytes, std::int64_t budget_bytes)
      : sizes_(sizes), times_(times), base_bytes_(base_bytes), budget_bytes_(budget_bytes) {}

  // Returns false if there are more partials than allowed. unit_bytes > 1 rounds held bytes up to multiples of it.
  bool run(std::int64_t unit_bytes, std::size_t most_partials) {
    unit_bytes_ = unit_bytes;
    partials_.assign(sizes_.size(), {});
    partials_[0] = {{.held_bytes = rounded(sizes_[0]), .time = 0, .from = 0, .from_partial = 0}};
    std::size_t made = 1;
    for (std::uint32_t j = 1; j < sizes_.size(); ++j) {
      gather(j);
      keep_best();
      made += found_.size();
      if (made > most_partials) return false;
      partials_[j].assign(found_.begin(), found_.end());
    }
    return true;
  }

  // The partials at the end are sorted by bytes, time falling: the last is the fastest.
  [[nodiscard]] bool found() const { return !partials_.back().empty(); }
  [[nodiscard]] std::int64_t time() const { return partials_.back().back().time; }

  [[nodiscard]] Checkpoints checkpoints() const {
    Checkpoints checkpoints;
    const Partial* partial = &partials_.back().back();
    while (partial->from != 0) {
      checkpoints.push_back(partial->from);
      partial = &partials_[partial->from][partial->from_partial];
    }
    std::ranges::reverse(checkpoints);
    return checkpoints;
  }

 private:
  [[nodiscard]] std::int64_t rounded(std::int64_t bytes) const {
    return (bytes + unit_bytes_ - 1) / unit_bytes_ * unit_bytes_;
  }

  // All partials that j can get. The segment grows as i falls, so the first i without room for it ends the search.
  void gather(std::uint32_t j) {
    found_.clear();
    const bool end = j + 1 == sizes_.size();
    std::int64_t sum = 0;
    std::int64_t gradient = 0;
    std::int64_t time = 0;
    for (std::uint32_t i = j; i-- > 0;) {
      sum += sizes_[i + 1];
      gradient = std::max(gradient, sizes_[i]);
      if (i + 1 < j) time += times_[i];  // layer i + 1
      std::int64_t room = budget_bytes_ - sum - gradient;
      if (room < sizes_[0]) return;
      if (end) room = std::min(room, budget_bytes_ - base_bytes_);
      const std::vector<Partial>& from = partials_[i];
      for (std::uint32_t k = 0; k < from.size() && from[k].held_bytes <= room; ++k) {
        const std::int64_t held = from[k].held_bytes + (end ? 0 : rounded(sizes_[j]));
        found_.push_back({.held_bytes = held, .time = from[k].time + time, .from = i, .from_partial = k});
      }
    }
  }

  // Bytes rising, time falling.
  void keep_best() {
    std::ranges::sort(found_, {}, [](const Partial& l) { return std::tuple(l.held_bytes, l.time, l.from); });
    std::size_t left = 0;
    for (const Partial& partial : found_) {
      if (left == 0 || partial.time < found_[left - 1].time) found_[left++] = partial;
    }
    found_.resize(left);
  }

  ByteSpan sizes_;
  std::span<const std::int64_t> times_;
  std::int64_t base_bytes_;
  std::int64_t budget_bytes_;
  std::int64_t unit_bytes_ = 1;
  std::vector<std::vector<Partial>> partials_;
  std::vector<Partial> found_;
};

std::int64_t recompute_time(std::span<const std::int64_t> times, const Checkpoints& checkpoints) {
  std::int64_t time = 0;
  for (std::size_t k = 1; k < times.size(); ++k) time += times[k - 1];
  for (const std::uint32_t c : checkpoints) time -= times[c - 1];
  return time;
}

}  // namespace

std::optional<BudgetAnswer> least_recomputation(ByteSpan sizes, std::span<const std::int64_t> times,
                                                std::int64_t base_bytes, std::int64_t budget_bytes,
                                                const BudgetLimits& limits) {
  ChainAnswer least = least_peak(sizes, base_bytes);
  if (least.peak_bytes > budget_bytes) return std::nullopt;
  BudgetAnswer answer{.recompute_time = recompute_time(times, least.checkpoints),
                      .peak_bytes = least.peak_bytes,
                      .checkpoints = std::move(least.checkpoints)};
  if (sizes.size() == 1) return answer;
  BudgetSearch search(sizes, times, base_bytes, budget_bytes);
  if (!search.run(1, limits.most_partials)) {
    answer.rounded = true;
    const std::int64_t unit = std::max<std::int64_t>(1, (budget_bytes + limits.units - 1) / limits.units);
    search.run(unit, static_cast<std::size_t>(limits.units + 1) * sizes.size());
  }
  if (!search.found() || search.time() >= answer.recompute_time) return answer;
  answer.recompute_time = search.time();
  answer.checkpoints = search.checkpoints();
  answer.peak_bytes = dynamic_peak(sizes, answer.checkpoints, base_bytes);
  return answer;
}

}  // namespace reprise::detail
