// Enumeration by levels: every lower set of c + 1 nodes is a lower set of c nodes plus one node whose predecessors are
// all inside. On a diamond a -> {b, c} -> d:
//
//   {}   {a}   {a,b} {a,c}   {a,b,c}   {a,b,c,d}
//
// A level is deduplicated by an open-addressing index over the words of its sets. O(sets * (width + words)).
// Tested by tests/unit/papers/lower_sets_test.cc.
#include "papers/lower_sets.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace reprise::detail {
namespace {

// Sets of one level, each once.
class Level {
 public:
  explicit Level(std::size_t words) : words_(words), places_(16, kEmpty) {}

  [[nodiscard]] std::size_t size() const { return sets_.size() / words_; }
  [[nodiscard]] std::span<const std::uint64_t> operator[](std::size_t i) const { return {&sets_[i * words_], words_}; }
  [[nodiscard]] const std::vector<std::uint64_t>& words() const { return sets_; }

  void insert(std::span<const std::uint64_t> set) {
    if (2 * (size() + 1) > places_.size()) grow();
    std::uint32_t& place = places_[find(set)];
    if (place != kEmpty) return;
    place = static_cast<std::uint32_t>(size());
    sets_.insert(sets_.end(), set.begin(), set.end());
  }

 private:
  static constexpr std::uint32_t kEmpty = 0xFFFFFFFFU;

  static std::size_t hash(std::span<const std::uint64_t> set) {
    std::uint64_t h = 0x9E3779B97F4A7C15U;
    for (const std::uint64_t word : set) h = std::rotl((h ^ word) * 0xD6E8FEB86659FD93U, 31);
    return h;
  }

  // The place that holds the set, or the empty one where it belongs.
  [[nodiscard]] std::size_t find(std::span<const std::uint64_t> set) const {
    std::size_t place = hash(set) & (places_.size() - 1);
    while (places_[place] != kEmpty && !std::ranges::equal((*this)[places_[place]], set))
      place = (place + 1) & (places_.size() - 1);
    return place;
  }

  void grow() {
    places_.assign(2 * places_.size(), kEmpty);
    for (std::size_t i = 0; i < size(); ++i) places_[find((*this)[i])] = static_cast<std::uint32_t>(i);
  }

  std::size_t words_;
  std::vector<std::uint64_t> sets_;
  std::vector<std::uint32_t> places_;
};

bool has(std::span<const std::uint64_t> set, NodeId node) { return (set[node / 64] >> (node % 64) & 1U) != 0; }

void add(std::span<std::uint64_t> set, NodeId node) { set[node / 64] |= std::uint64_t{1} << (node % 64); }

// Calls visit(node) for every node outside `set` whose predecessors are all inside.
template <typename Visit>
void for_each_next(const ForwardView& view, std::span<const std::uint64_t> set, const Visit& visit) {
  for (std::size_t word = 0; word < set.size(); ++word) {
    for (std::uint64_t outside = ~set[word]; outside != 0; outside &= outside - 1) {
      const std::size_t node = 64 * word + static_cast<std::size_t>(std::countr_zero(outside));
      if (node >= view.num_nodes()) break;
      const auto preds = view.preds[node];
      if (std::ranges::all_of(preds, [&](NodeId p) { return has(set, p); })) visit(static_cast<NodeId>(node));
    }
  }
}

Level next_level(const ForwardView& view, const Level& level, std::size_t words, std::size_t limit) {
  Level next(words);
  std::vector<std::uint64_t> grown(words);
  for (std::size_t i = 0; i < level.size() && next.size() <= limit; ++i) {
    for_each_next(view, level[i], [&](NodeId node) {
      std::ranges::copy(level[i], grown.begin());
      add(grown, node);
      next.insert(grown);
    });
  }
  return next;
}

}  // namespace

LowerSetFamily::LowerSetFamily(const ForwardView& view, std::vector<std::uint64_t> sets)
    : words_(LowerSetFamily::words_for(view.num_nodes())), sets_(std::move(sets)) {
  const std::size_t count = sets_.size() / words_;
  bytes_.reserve(count);
  time_.reserve(count);
  back_bytes_.reserve(count);
  for (std::size_t set = 0; set < count; ++set) describe(view, static_cast<SetId>(set));
}

bool LowerSetFamily::subset(SetId inner, SetId outer) const {
  for (std::size_t word = 0; word < words_; ++word) {
    if ((sets_[inner * words_ + word] & ~sets_[outer * words_ + word]) != 0) return false;
  }
  return true;
}

Blocks LowerSetFamily::blocks(std::span<const SetId> sequence) const {
  Blocks result{.block = std::vector<std::uint32_t>(count(whole()), 0),
                .count = static_cast<std::uint32_t>(sequence.size())};
  for (NodeId v = 0; v < result.block.size(); ++v) {
    while (!contains(sequence[result.block[v]], v)) ++result.block[v];
  }
  return result;
}

LowerSetFamily LowerSetFamily::with_times_of(const ForwardView& view) const {
  LowerSetFamily result = *this;
  for (SetId set = 0; set < size(); ++set) {
    result.time_[set] = 0;
    for (NodeId v = 0; v < view.num_nodes(); ++v) result.time_[set] += contains(set, v) ? view.time[v] : 0;
  }
  return result;
}

void LowerSetFamily::describe(const ForwardView& view, SetId set) {
  std::size_t count = 0;
  std::int64_t bytes = 0;
  std::int64_t time = 0;
  std::int64_t back = 0;
  std::vector<NodeId> boundary;
  std::vector<NodeId> next;
  std::vector<NodeId> beside;  // outside the set, feeding a node that the set feeds too
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    const bool fed = std::ranges::any_of(view.preds[v], [&](NodeId p) { return contains(set, p); });
    if (contains(set, v)) {
      ++count;
      bytes += view.bytes[v];
      time += view.time[v];
      if (std::ranges::any_of(view.succs[v], [&](NodeId w) { return !contains(set, w); })) boundary.push_back(v);
      continue;
    }
    if (std::ranges::all_of(view.preds[v], [&](NodeId p) { return contains(set, p); })) next.push_back(v);
    if (!fed) continue;
    back += view.bytes[v];
    std::ranges::copy_if(view.preds[v], std::back_inserter(beside), [&](NodeId p) { return !contains(set, p); });
  }
  std::ranges::sort(beside);
  beside.erase(std::unique(beside.begin(), beside.end()), beside.end());
  for (const NodeId v : beside) back += view.bytes[v];
  count_.push_back(count);
  bytes_.push_back(bytes);
  time_.push_back(time);
  back_bytes_.push_back(back);
  boundary_.push_row(boundary);
  next_nodes_.push_row(next);
}

std::optional<LowerSetFamily> all_lower_sets(const ForwardView& view, std::size_t limit) {
  const std::size_t words = LowerSetFamily::words_for(view.num_nodes());
  Level level(words);
  level.insert(std::vector<std::uint64_t>(words, 0));
  std::vector<std::uint64_t> sets;
  while (level.size() != 0) {
    sets.insert(sets.end(), level.words().begin(), level.words().end());
    if (sets.size() / words > limit) return std::nullopt;
    level = next_level(view, level, words, limit);
  }
  return LowerSetFamily(view, std::move(sets));
}

LowerSetFamily ancestor_sets(const ForwardView& view) {
  const std::size_t words = LowerSetFamily::words_for(view.num_nodes());
  const std::size_t nodes = view.num_nodes();
  std::vector<std::uint64_t> sets((nodes + 2) * words, 0);  // row v: v and its ancestors; then {} and V
  const auto row = [&](std::size_t i) { return std::span(&sets[i * words], words); };
  for (NodeId v = 0; v < nodes; ++v) {
    for (const NodeId p : view.preds[v]) {
      for (std::size_t word = 0; word < words; ++word) row(v)[word] |= row(p)[word];
    }
    add(row(v), v);
    add(row(nodes + 1), v);
  }
  std::vector<std::pair<int, std::size_t>> order;  // (cardinality, row)
  for (std::size_t i = 0; i < nodes + 2; ++i) {
    int count = 0;
    for (const std::uint64_t word : row(i)) count += std::popcount(word);
    const bool repeated = i == nodes + 1 && std::ranges::any_of(order, [&](const auto& o) { return o.first == count; });
    if (!repeated) order.emplace_back(count, i);
  }
  std::ranges::sort(order);
  std::vector<std::uint64_t> sorted;
  for (const auto& [count, i] : order) sorted.insert(sorted.end(), row(i).begin(), row(i).end());
  return LowerSetFamily(view, std::move(sorted));
}

}  // namespace reprise::detail
