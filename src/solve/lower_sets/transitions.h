// Transitions of a lower-set sequence, from a set L to a larger one L', and what one costs:
//
//   cached_bytes  M(boundary(L') - L)                      joins the cache
//   overhead      T(L') - T(L) - T(boundary(L') - L)       is computed once more (nothing, for a last kept block)
//   block pass    cached so far + 2 (M(L') - M(L)) + back(L')  must fit the budget
//
// A family of 27,000 sets has 120 million such pairs, so pairs are not looked at one by one. Per node there is a bitset
// of the sets that contain it. The subsets of L' are the sets that contain none of its next nodes: a few word
// operations give 64 answers. The same words split the subsets by which boundary nodes of L' they contain, and within
// one part cached_bytes and the boundary's share of overhead are constant.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "papers/lower_sets.h"

namespace reprise::detail {

// 64 candidate sets with ids 64 * word + bit, all of which contain the same nodes of the target's boundary.
struct Part {
  std::uint64_t mask;
  std::size_t word;
  std::int64_t cached_bytes;
  std::int64_t cached_time;

  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (std::uint64_t rest = mask; rest != 0; rest &= rest - 1) {
      visit(static_cast<SetId>(64 * word + static_cast<std::size_t>(std::countr_zero(rest))));
    }
  }
};

class Transitions {
 public:
  // Both must outlive the object.
  Transitions(const ForwardView& view, const LowerSetFamily& family, bool keep_last);

  [[nodiscard]] const LowerSetFamily& family() const { return family_; }
  [[nodiscard]] const ForwardView& view() const { return view_; }
  [[nodiscard]] bool keep_last() const { return keep_last_; }

  [[nodiscard]] std::int64_t overhead(SetId from, SetId to, std::int64_t cached_time) const {
    if (keep_last_ && to == family_.whole()) return 0;
    return family_.time(to) - family_.time(from) - cached_time;
  }
  // The block pass of (from, to) without what is cached before it.
  [[nodiscard]] std::int64_t pass_bytes(SetId from, SetId to) const {
    return 2 * (family_.bytes(to) - family_.bytes(from)) + family_.back_bytes(to);
  }

  // Visits, in parts, all proper subsets of `to` among the sets in `alive` (a bitset over sets), except where
  // skip(word) says that none of the sets 64 * word .. 64 * word + 63 is of interest.
  template <typename Skip, typename Visit>
  void for_each_part(SetId to, std::span<const std::uint64_t> alive, const Skip& skip, const Visit& visit) const {
    const auto next = family_.next_nodes(to);
    const auto boundary = family_.boundary(to);
    for (std::size_t word = 0; 64 * word < to; ++word) {
      std::uint64_t mask = alive[word];
      if (mask == 0 || skip(word)) continue;
      if (to - 64 * word < 64) mask &= (std::uint64_t{1} << (to - 64 * word)) - 1;
      for (const NodeId node : next) mask &= ~holders(node)[word];
      if (mask != 0) split({.mask = mask, .word = word, .cached_bytes = 0, .cached_time = 0}, boundary, visit);
    }
  }

  // One transition by itself; `mask` and `word` have no meaning.
  [[nodiscard]] Part single(SetId from, SetId to) const;

 private:
  // Bitset of the sets that contain the node.
  [[nodiscard]] std::span<const std::uint64_t> holders(NodeId node) const { return {&holders_[node * words_], words_}; }

  template <typename Visit>
  void split(Part part, std::span<const NodeId> boundary, const Visit& visit) const {
    for (; !boundary.empty(); boundary = boundary.subspan(1)) {
      const NodeId node = boundary.front();
      const std::uint64_t holding = part.mask & holders(node)[part.word];
      const std::uint64_t lacking = part.mask & ~holding;
      if (lacking == 0) continue;
      Part with = part;
      with.mask = holding;
      part.mask = lacking;
      part.cached_bytes += view_.bytes[node];
      part.cached_time += view_.time[node];
      if (holding != 0) split(with, boundary.subspan(1), visit);
    }
    visit(part);
  }

  const ForwardView& view_;
  const LowerSetFamily& family_;
  bool keep_last_;
  std::size_t words_;
  std::vector<std::uint64_t> holders_;
};

}  // namespace reprise::detail
