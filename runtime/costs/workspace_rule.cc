#include "runtime/costs/workspace_rule.h"

#include <algorithm>
#include <numeric>

namespace reprise {
namespace {

constexpr std::int64_t kFarther = 2;      // how far beyond the known sizes what was seen there still holds
constexpr std::size_t kEnoughSizes = 2;   // at which a rule has to hold
constexpr std::size_t kMostSizes = 16;    // at which no rule is found
constexpr std::int64_t kMostCopies = 16;  // a steeper line is not one of copies

std::int64_t total(std::span<const std::int64_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

std::int64_t copied(std::span<const std::int64_t> bytes, std::size_t one, std::size_t other) {
  return one == other ? bytes[one] : bytes[one] + bytes[other];
}

}  // namespace

void WorkspaceRule::learn(std::span<const std::int64_t> bytes, std::int64_t workspace_bytes) {
  if (is_given_up_) return;
  if (std::ranges::any_of(seen_, [&](const Seen& seen) { return std::ranges::equal(seen.bytes, bytes); })) return;
  if (seen_.size() == kMostSizes) {
    is_given_up_ = true;
    seen_.clear();
    return;
  }
  seen_.push_back({.bytes = {bytes.begin(), bytes.end()}, .workspace_bytes = workspace_bytes});
}

bool WorkspaceRule::is_near(std::span<const std::int64_t> bytes) const {
  const auto [least, most] = std::ranges::minmax_element(seen_, {}, [](const Seen& seen) { return total(seen.bytes); });
  return total(bytes) <= kFarther * total(most->bytes) && kFarther * total(bytes) >= total(least->bytes);
}

std::optional<std::int64_t> WorkspaceRule::by_copies(std::span<const std::int64_t> bytes, std::size_t one,
                                                     std::size_t other) const {
  const auto of = [&](const Seen& seen) { return copied(seen.bytes, one, other); };
  const Seen& first = seen_.front();
  const auto second = std::ranges::find_if(seen_, [&](const Seen& seen) { return of(seen) != of(first); });
  if (second == seen_.end()) return std::nullopt;
  const std::int64_t grows = second->workspace_bytes - first.workspace_bytes;
  const std::int64_t by = of(*second) - of(first);
  const std::int64_t copies = grows / by;
  const std::int64_t beside = first.workspace_bytes - copies * of(first);
  if (grows % by != 0 || copies < 1 || copies > kMostCopies || beside < 0) return std::nullopt;
  const bool holds =
      std::ranges::all_of(seen_, [&](const Seen& seen) { return seen.workspace_bytes == beside + copies * of(seen); });
  return holds ? std::optional(beside + copies * copied(bytes, one, other)) : std::nullopt;
}

std::optional<std::int64_t> WorkspaceRule::at(std::span<const std::int64_t> bytes) const {
  if (seen_.size() < kEnoughSizes || !is_near(bytes)) return std::nullopt;
  const std::int64_t first = seen_.front().workspace_bytes;
  if (std::ranges::all_of(seen_, [&](const Seen& seen) { return seen.workspace_bytes == first; })) return first;
  std::optional<std::int64_t> found;
  for (std::size_t one = 0; one < bytes.size(); ++one) {
    for (std::size_t other = one; other < bytes.size(); ++other) {
      const std::optional<std::int64_t> ruled = by_copies(bytes, one, other);
      if (ruled && found && *ruled != *found) return std::nullopt;
      if (ruled) found = ruled;
    }
  }
  return found;
}

}  // namespace reprise
