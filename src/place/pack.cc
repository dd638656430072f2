// Offsets for lives. The load, the highest sum of what is live at once, is a lower bound for every arena; training
// steps come close to it because lives nest.
//
//   1. Greedy: items one after the other into the lowest gap, in a few orders, best first: by the highest load during
//      the life, then by size.
//   2. Dives (dive.h) under ceilings from the load upwards, with several priorities (priorities.h) that learn from
//   every
//      dive that fails, until one succeeds.
// Dives are for large items. Small ones are placed last, by size, and hardly ever move the top; where they do, because
// there are many, dives take most of them too. What outlives the step is stacked down from the top: for a dive this is
// a ceiling that falls from section to section; the greedy orders work upside down, from the stack upwards, and are
// turned over at the end.
//
// Every loop is bounded by counts. Tested by tests/unit/place, tests/oracle/place_test.cc (against all packings of
// small inputs) and tests/property/place_test.cc (against the validator).
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

#include "place/dive.h"
#include "place/lowest_gap.h"
#include "place/priorities.h"
#include "place/sections.h"
#include "reprise/place.h"

namespace reprise {
namespace {

using detail::Dive;
using detail::Item;
using detail::LowestGap;
using detail::Priorities;
using detail::Sections;

using Order = std::vector<std::uint32_t>;  // of items
using Key = std::function<double(const Item&)>;

class Packer {
 public:
  Packer(std::span<const Buffer> buffers, const PlaceOptions& options)
      : options_(options), sections_(detail::sections_of(buffers, options.alignment_bytes)) {
    for (std::uint32_t i = 0; i < sections_.items.size(); ++i) {
      if (item(i).bytes == 0) continue;
      (buffers[i].outlives && options.outliving_on_top ? stack_ : loose_).push_back(i);
    }
    std::ranges::stable_sort(stack_, {}, [&](std::uint32_t i) { return buffers[i].begin; });
    stacked_.assign(sections_.loads.size(), 0);
    for (const std::uint32_t i : stack_) stacked_[item(i).first] += item(i).bytes;
    std::partial_sum(stacked_.begin(), stacked_.end(), stacked_.begin());
  }

  Packing pack() {
    const std::int64_t small = sections_.load_bytes / kSmallPart;
    const std::int64_t fewer = fewer_small(small);
    split(small);
    try_greedy_orders();
    try_dives();
    if (fewer < small && !close_enough()) {
      split(fewer);
      try_dives();
    }
    best_.load_bytes = sections_.load_bytes;
    best_.work = work_;
    return std::move(best_);
  }

 private:
  static constexpr std::int64_t kSmallPart = 2000;  // small items have at most load / kSmallPart bytes
  static constexpr std::int64_t kFewerPart = 4000;  // fewer small ones have that much at once
  static constexpr std::int64_t kLeastPart = 2000;  // an arena above the load by less is close enough
  static constexpr int kRoundsAtLoad = 2;           // in each of them every priority has a dive
  static constexpr int kRounds = 6;
  static constexpr int kHalvings = 4;

  [[nodiscard]] const Item& item(std::uint32_t i) const { return sections_.items[i]; }
  [[nodiscard]] bool found_any() const { return !best_.offsets.empty(); }
  [[nodiscard]] bool done() const {
    return (found_any() && best_.arena_bytes == sections_.load_bytes) || work_ >= options_.work;
  }
  [[nodiscard]] std::int64_t least_gain() const {
    return std::max(options_.alignment_bytes, sections_.load_bytes / kLeastPart);
  }
  [[nodiscard]] bool close_enough() const { return best_.arena_bytes - sections_.load_bytes < least_gain(); }

  // The highest sum of what is live at once of loose items up to a size.
  [[nodiscard]] std::int64_t load_up_to(std::int64_t most) const {
    std::vector<std::int64_t> changes(sections_.loads.size() + 1, 0);
    for (const std::uint32_t i : loose_) {
      if (item(i).bytes > most) continue;
      changes[item(i).first] += item(i).bytes;
      changes[item(i).last] -= item(i).bytes;
    }
    std::partial_sum(changes.begin(), changes.end(), changes.begin());
    return *std::ranges::max_element(changes);
  }

  // A size, halved until the items up to it hardly count together.
  [[nodiscard]] std::int64_t fewer_small(std::int64_t small) const {
    while (small > 0 && load_up_to(small) > sections_.load_bytes / kFewerPart) small /= 2;
    return small;
  }

  void split(std::int64_t small) {
    large_.clear();
    small_.clear();
    for (const std::uint32_t i : loose_) (item(i).bytes > small ? large_ : small_).push_back(i);
    std::ranges::stable_sort(small_, std::ranges::greater{}, [&](std::uint32_t i) { return item(i).bytes; });
  }

  // Large items by falling key.
  [[nodiscard]] Order ordered(const Key& key, const Key& then) const {
    Order order = large_;
    std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
      const double key_a = key(item(a)), key_b = key(item(b));
      return key_a != key_b ? key_a > key_b : then(item(a)) > then(item(b));
    });
    return order;
  }

  void try_greedy_orders() {
    const std::array<std::pair<Key, Key>, 4> keys{{{detail::load_of, detail::bytes_of},
                                                   {detail::bytes_of, detail::length_of},
                                                   {detail::area_of, detail::bytes_of},
                                                   {detail::length_of, detail::bytes_of}}};
    for (const auto& [key, then] : keys) {
      if (found_any() && done()) return;
      greedy(ordered(key, then));
    }
  }

  // Upside down: the stack lies at the bottom.
  void greedy(const Order& order) {
    LowestGap shelf(sections_.items);
    std::vector<std::int64_t> offsets(sections_.items.size(), 0);
    const auto place = [&](std::uint32_t i) { offsets[i] = shelf.place(i, {.offset = 0, .end = stacked_by(item(i))}); };
    std::ranges::for_each(order, place);
    std::ranges::for_each(small_, place);
    work_ += shelf.work();
    const std::int64_t top = std::max(shelf.top(), stack_height());
    if (!stack_.empty()) {
      for (const std::uint32_t i : loose_) offsets[i] = top - offsets[i] - item(i).bytes;
    }
    keep_if_better(std::move(offsets), top, top);
  }

  [[nodiscard]] std::int64_t stack_height() const { return stacked_.empty() ? 0 : stacked_.back(); }
  // Bytes of the stack that are there at the end of a life, when there are most: what is stacked stays.
  [[nodiscard]] std::int64_t stacked_by(const Item& item) const { return stacked_[item.last - 1]; }

  // `offsets` are of loose items, which end at `top` or below; the stack is added from `stack_top` downwards.
  bool keep_if_better(std::vector<std::int64_t> offsets, std::int64_t top, std::int64_t stack_top) {
    const std::int64_t arena = stack_.empty() ? top : std::max(top, stack_top);
    if (found_any() && arena >= best_.arena_bytes) return false;
    for (const std::uint32_t i : stack_) offsets[i] = stack_top -= item(i).bytes;
    best_.offsets = std::move(offsets);
    best_.arena_bytes = arena;
    return true;
  }

  // Whether what is left of the work is enough for one of them.
  [[nodiscard]] bool can_dive(std::size_t items) const {
    return items > 0 && !done() && items <= (options_.work - work_) / items;
  }

  void try_dives() {
    if (!can_dive(large_.size())) return;
    std::vector<Item> items;
    for (const std::uint32_t i : large_) items.push_back(item(i));
    Priorities priorities(items);
    if (dive_under(sections_.load_bytes, items, priorities, kRoundsAtLoad)) return;
    // Towards the load: half of the way first; where that fails, less and less of it.
    for (int halvings = 1; halvings <= kHalvings && !done() && !close_enough();) {
      const std::int64_t above = best_.arena_bytes - sections_.load_bytes;
      const std::int64_t gain = halvings == kHalvings ? least_gain() : std::max(above >> halvings, least_gain());
      halvings = dive_under(aligned_down(best_.arena_bytes - gain), items, priorities, kRounds) ? 1 : halvings + 1;
    }
  }

  [[nodiscard]] std::int64_t aligned_down(std::int64_t bytes) const { return bytes & -options_.alignment_bytes; }

  // Whether there is now a packing that is better than before.
  bool dive_under(std::int64_t arena, const std::vector<Item>& items, Priorities& priorities, int rounds) {
    constexpr std::size_t kLeastNodes = 1000;
    const std::size_t nodes = std::max(items.size() + items.size() / 8, kLeastNodes);
    std::vector<std::int64_t> ceilings;  // the lower end of what is stacked by then
    for (const std::int64_t stacked : stacked_) ceilings.push_back(arena - stacked);
    Dive dive(items, ceilings);
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t k = 0; k < priorities.size(); ++k) {
        if (work_ >= options_.work) return false;
        const std::size_t before = dive.work();
        const bool found = dive.run(priorities.ranks(k), {.nodes = nodes, .work = options_.work - work_});
        work_ += dive.work() - before;
        if (found) return finish(arena, dive.offsets());
        priorities.move_up(k, dive.blamed());
      }
    }
    return false;
  }

  // Adds the small items to what a dive found.
  bool finish(std::int64_t arena, const std::vector<std::int64_t>& found) {
    LowestGap shelf(sections_.items);
    std::vector<std::int64_t> offsets(sections_.items.size(), 0);
    for (std::size_t k = 0; k < large_.size(); ++k) shelf.put(large_[k], offsets[large_[k]] = found[k]);
    for (const std::uint32_t i : small_) {
      offsets[i] = shelf.place(i, {.offset = arena - stacked_by(item(i)), .end = arena});
    }
    work_ += shelf.work();
    return keep_if_better(std::move(offsets), shelf.top(), arena);
  }

  const PlaceOptions& options_;
  Sections sections_;
  Order stack_, loose_;                // all items that have bytes
  Order large_, small_;                // the loose ones
  std::vector<std::int64_t> stacked_;  // by section: bytes of the stack by then
  Packing best_;
  std::size_t work_ = 0;
};

}  // namespace

Packing pack(std::span<const Buffer> buffers, const PlaceOptions& options) { return Packer(buffers, options).pack(); }

}  // namespace reprise
