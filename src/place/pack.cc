// Offsets for lives. The load, the highest sum of what is live at once, is a lower bound for every arena; training
// steps come close to it because lives nest.
//
//   1. Greedy: items one after the other into the lowest gap, in a few orders, best first: by the highest load during
//      the life, then by size.
//   2. Dives (dive.h) under ceilings from the load upwards, with several priorities, also shaken ones, until one
//      succeeds.
// Items below a small part of the load are placed last, by size, and hardly ever move the top. What outlives the step
// is stacked down from the top: for a dive this is a ceiling that falls from section to section; the greedy orders work
// upside down, from the stack upwards, and are turned over at the end.
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
#include "place/sections.h"
#include "reprise/place.h"

namespace reprise {
namespace {

using detail::Dive;
using detail::Item;
using detail::LowestGap;
using detail::Sections;

using Order = std::vector<std::uint32_t>;  // of items
using Key = std::function<double(const Item&)>;

constexpr std::int64_t kSmallPart = 2000;  // items of at most load / kSmallPart come last

double bytes_of(const Item& item) { return static_cast<double>(item.bytes); }
double length_of(const Item& item) { return static_cast<double>(item.length); }
double load_of(const Item& item) { return static_cast<double>(item.highest_load); }
double area_of(const Item& item) { return bytes_of(item) * length_of(item); }

// Numbers that are the same everywhere: splitmix64.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}
  double factor() {  // 0.8 .. 1.2
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    z ^= z >> 31U;
    return 0.8 + 0.4 * static_cast<double>(z >> 11U) / static_cast<double>(std::uint64_t{1} << 53U);
  }

 private:
  std::uint64_t state_;
};

class Packer {
 public:
  Packer(std::span<const Buffer> buffers, const PlaceOptions& options)
      : options_(options), sections_(detail::sections_of(buffers, options.alignment_bytes)) {
    stacked_at_.assign(sections_.items.size(), 0);
    for (std::uint32_t i = 0; i < sections_.items.size(); ++i) {
      const Item& item = sections_.items[i];
      if (item.bytes == 0) continue;
      if (buffers[i].outlives && options.outliving_on_top) {
        stack_.push_back(i);
      } else {
        (item.bytes > sections_.load_bytes / kSmallPart ? large_ : small_).push_back(i);
      }
    }
    std::ranges::stable_sort(stack_, {}, [&](std::uint32_t i) { return buffers[i].begin; });
    std::ranges::stable_sort(small_, std::ranges::greater{}, [&](std::uint32_t i) { return item(i).bytes; });
    std::int64_t height = 0;
    for (const std::uint32_t i : stack_) {
      stacked_at_[i] = height;
      height += item(i).bytes;
    }
  }

  Packing pack() {
    try_greedy_orders();
    try_dives();
    best_.load_bytes = sections_.load_bytes;
    best_.work = work_;
    return std::move(best_);
  }

 private:
  [[nodiscard]] const Item& item(std::uint32_t i) const { return sections_.items[i]; }
  [[nodiscard]] bool done() const {
    return (!best_.offsets.empty() && best_.arena_bytes == sections_.load_bytes) || work_ >= options_.work;
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
    const std::array<std::pair<Key, Key>, 4> keys{
        {{load_of, bytes_of}, {bytes_of, length_of}, {area_of, bytes_of}, {length_of, bytes_of}}};
    for (const auto& [key, then] : keys) {
      if (!best_.offsets.empty() && done()) return;
      greedy(ordered(key, then));
    }
  }

  void greedy(const Order& order) {
    LowestGap shelf;
    std::vector<std::int64_t> offsets(sections_.items.size(), 0);
    for (const std::uint32_t i : stack_) shelf.put(item(i), offsets[i] = stacked_at_[i]);
    for (const std::uint32_t i : order) offsets[i] = shelf.place(item(i));
    for (const std::uint32_t i : small_) offsets[i] = shelf.place(item(i));
    work_ += shelf.work();
    if (!stack_.empty()) {
      for (std::uint32_t i = 0; i < offsets.size(); ++i) offsets[i] = shelf.top() - offsets[i] - item(i).bytes;
    }
    keep_if_better(std::move(offsets), shelf.top());
  }

  void keep_if_better(std::vector<std::int64_t> offsets, std::int64_t top) {
    if (!best_.offsets.empty() && top >= best_.arena_bytes) return;
    for (std::uint32_t i = 0; i < offsets.size(); ++i) {
      if (item(i).bytes == 0) offsets[i] = 0;
    }
    best_.offsets = std::move(offsets);
    best_.arena_bytes = top;
  }

  // Ranks of large items (by their place in large_) for each priority, plain and shaken.
  [[nodiscard]] std::vector<Order> priorities() const {
    constexpr std::uint64_t kShaken = 3;
    std::vector<Order> found;
    for (std::uint64_t seed = 0; seed <= kShaken; ++seed) {
      for (const auto& key : {area_of, length_of, bytes_of, load_of}) {
        Noise noise(seed);
        std::vector<double> value;
        for (const std::uint32_t i : large_) value.push_back(key(item(i)) * (seed == 0 ? 1 : noise.factor()));
        Order order(large_.size());
        std::iota(order.begin(), order.end(), 0U);
        std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::uint32_t i) { return value[i]; });
        Order ranks(large_.size());
        for (std::uint32_t rank = 0; rank < order.size(); ++rank) ranks[order[rank]] = rank;
        found.push_back(std::move(ranks));
      }
    }
    return found;
  }

  void try_dives() {
    if (done() || large_.empty()) return;
    std::vector<Item> items;
    for (const std::uint32_t i : large_) items.push_back(item(i));
    const std::vector<Order> ranks = priorities();
    if (dive_under(sections_.load_bytes, items, std::span(ranks).first(kPriorities))) return;
    // Towards the load: half of the way first; where that fails, less and less of it.
    const std::int64_t least_step = std::max(options_.alignment_bytes, sections_.load_bytes / kLeastPart);
    for (int halvings = 1; halvings <= kHalvings && !done();) {
      const std::int64_t above = best_.arena_bytes - sections_.load_bytes;
      if (above < least_step) return;
      const std::int64_t step = halvings == kHalvings ? least_step : std::max(above >> halvings, least_step);
      halvings = dive_under(aligned_down(best_.arena_bytes - step), items, ranks) ? 1 : halvings + 1;
    }
  }

  static constexpr std::size_t kPriorities = 4;
  static constexpr std::int64_t kLeastPart = 2000;
  static constexpr int kHalvings = 4;

  [[nodiscard]] std::int64_t aligned_down(std::int64_t bytes) const { return bytes & -options_.alignment_bytes; }

  // By section: the lower end of what is stacked by then, which all outlives the step.
  [[nodiscard]] std::vector<std::int64_t> ceilings_under(std::int64_t arena) const {
    std::vector<std::int64_t> ceilings(sections_.loads.size(), 0);
    for (const std::uint32_t i : stack_) ceilings[item(i).first] += item(i).bytes;
    std::int64_t stacked = 0;
    for (std::int64_t& ceiling : ceilings) {
      stacked += ceiling;
      ceiling = arena - stacked;
    }
    return ceilings;
  }

  // Whether there is now a packing that is better than before.
  bool dive_under(std::int64_t arena, const std::vector<Item>& items, std::span<const Order> ranks) {
    constexpr std::size_t kNodesPerItem = 3;
    constexpr std::size_t kLeastNodes = 1000;
    const std::vector<std::int64_t> ceilings = ceilings_under(arena);
    Dive dive(items, ceilings);
    for (const Order& rank : ranks) {
      if (work_ >= options_.work) return false;
      const std::size_t before = dive.work();
      const bool found =
          dive.run(rank, {.nodes = std::max(kNodesPerItem * items.size(), kLeastNodes), .work = options_.work - work_});
      work_ += dive.work() - before;
      if (found) return finish(arena, dive.offsets());
    }
    return false;
  }

  // Adds the stack and the small items to what a dive found.
  bool finish(std::int64_t arena, const std::vector<std::int64_t>& found) {
    LowestGap shelf;
    std::vector<std::int64_t> offsets(sections_.items.size(), 0);
    for (const std::uint32_t i : stack_) shelf.put(item(i), offsets[i] = arena - stacked_at_[i] - item(i).bytes);
    for (std::size_t k = 0; k < large_.size(); ++k) shelf.put(item(large_[k]), offsets[large_[k]] = found[k]);
    for (const std::uint32_t i : small_) offsets[i] = shelf.place(item(i));
    work_ += shelf.work();
    const bool better = shelf.top() < best_.arena_bytes;
    keep_if_better(std::move(offsets), shelf.top());
    return better;
  }

  const PlaceOptions& options_;
  Sections sections_;
  Order stack_, large_, small_;           // all items that have bytes
  std::vector<std::int64_t> stacked_at_;  // by item of the stack: from the top of the arena to its end
  Packing best_;
  std::size_t work_ = 0;
};

}  // namespace

Packing pack(std::span<const Buffer> buffers, const PlaceOptions& options) { return Packer(buffers, options).pack(); }

}  // namespace reprise
