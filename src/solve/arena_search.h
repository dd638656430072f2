// Looks for a plan whose arena fits the budget together with what lies outside it. Peaks decide what is planned, and
// packing follows: near a budget there are many plans that are hardly slower than the fastest, and one of them mostly
// packs well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "reprise/place.h"
#include "solve/front.h"
#include "solve/problem.h"

namespace reprise::detail {

class ArenaSearch {
 public:
  ArenaSearch(const Problem& problem, const PlaceOptions& options, std::int64_t budget_bytes)
      : problem_(problem), options_(options), budget_bytes_(budget_bytes) {}

  // The fastest of the first few whose peaks are within `most_bytes`, or nothing. Nothing is packed twice.
  const Front::Point* first_that_fits(const Front& front, std::int64_t most_bytes);

  // Where everything lies at the point that was returned.
  [[nodiscard]] const std::optional<Placement>& placement() const { return placement_; }
  [[nodiscard]] std::size_t tried() const { return tried_.size(); }
  // The least that any of them takes with its arena.
  [[nodiscard]] std::int64_t least_bytes() const { return least_bytes_; }
  // For another search: the room that the arena has, less by the part that the fastest plan's arena had too much.
  [[nodiscard]] std::int64_t lower_budget_bytes() const { return lower_budget_bytes_; }

 private:
  static constexpr int kTries = 8;

  [[nodiscard]] bool fits(const Front::Point& point);

  const Problem& problem_;
  const PlaceOptions& options_;
  std::int64_t budget_bytes_;
  std::optional<Placement> placement_;
  std::set<std::pair<std::int64_t, std::int64_t>> tried_;  // peaks and times
  std::int64_t least_bytes_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t lower_budget_bytes_ = 0;
};

}  // namespace reprise::detail
