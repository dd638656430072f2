#include "place/priorities.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace reprise::detail {
namespace {

// Items from the first to the last.
std::vector<std::uint32_t> ranks_of(std::span<const std::uint32_t> order) {
  std::vector<std::uint32_t> ranks(order.size());
  for (std::uint32_t rank = 0; rank < order.size(); ++rank) ranks[order[rank]] = rank;
  return ranks;
}

std::vector<std::uint32_t> each_of(std::size_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

// What ends last meets most of what is stacked from the top, and has to lie low.
double end_of(const Item& item) { return static_cast<double>(item.last); }
double end_and_bytes_of(const Item& item) { return end_of(item) * bytes_of(item); }

}  // namespace

Priorities::Priorities(std::span<const Item> items) {
  for (const auto& key : {area_of, length_of, bytes_of, load_of, end_of, end_and_bytes_of}) {
    std::vector<std::uint32_t> order = each_of(items.size());
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::uint32_t i) { return key(items[i]); });
    ranks_.push_back(ranks_of(order));
  }
}

void Priorities::move_up(std::size_t priority, std::span<const std::uint32_t> items) {
  constexpr std::uint64_t kWhole = 10, kUp = 7;  // to 7/10 of the rank
  std::vector<std::uint32_t>& ranks = ranks_[priority];
  std::vector<std::uint64_t> places(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) places[i] = kWhole * ranks[i];
  for (const std::uint32_t i : items) places[i] = kUp * ranks[i];
  std::vector<std::uint32_t> order = each_of(ranks.size());
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return std::pair(places[i], ranks[i]); });
  ranks = ranks_of(order);
}

}  // namespace reprise::detail
