// Compares lower sets with an obvious model: all subsets of at most ten nodes, as bit masks in a std::set.
#include "papers/lower_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/small_tests.h"
#include "unit/papers/small_view.h"

namespace reprise::detail {
namespace {

constexpr std::uint64_t kSeeds = test::kSmallTests ? 20 : 200;

using Mask = std::uint32_t;
using Nodes = std::vector<NodeId>;

bool in(Mask set, NodeId v) { return (set >> v & 1U) != 0; }

bool is_lower(const ForwardView& view, Mask set) {
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    if (!in(set, v)) continue;
    for (const NodeId p : view.preds[v]) {
      if (!in(set, p)) return false;
    }
  }
  return true;
}

Mask mask_of(const LowerSetFamily& family, SetId set, std::size_t nodes) {
  Mask mask = 0;
  for (NodeId v = 0; v < nodes; ++v) mask |= family.contains(set, v) ? Mask{1} << v : 0;
  return mask;
}

Mask successors(const ForwardView& view, Mask set) {
  Mask result = 0;
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    for (const NodeId w : view.succs[v]) result |= in(set, v) ? Mask{1} << w : 0;
  }
  return result;
}

Mask predecessors(const ForwardView& view, Mask set) {
  Mask result = 0;
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    for (const NodeId p : view.preds[v]) result |= in(set, v) ? Mask{1} << p : 0;
  }
  return result;
}

std::int64_t sum(const std::vector<std::int64_t>& costs, Mask set) {
  std::int64_t total = 0;
  for (NodeId v = 0; v < costs.size(); ++v) total += in(set, v) ? costs[v] : 0;
  return total;
}

Nodes nodes_of(Mask set) {
  Nodes nodes;
  for (NodeId v = 0; v < 32; ++v) {
    if (in(set, v)) nodes.push_back(v);
  }
  return nodes;
}

void expect_described(const ForwardView& view, const LowerSetFamily& family, SetId set) {
  const Mask mask = mask_of(family, set, view.num_nodes());
  ASSERT_EQ(family.count(set), static_cast<std::size_t>(std::popcount(mask)));
  ASSERT_EQ(family.bytes(set), sum(view.bytes, mask));
  ASSERT_EQ(family.time(set), sum(view.time, mask));
  const Mask after = successors(view, mask);
  ASSERT_EQ(family.back_bytes(set),
            sum(view.bytes, after & ~mask) + sum(view.bytes, predecessors(view, after) & ~mask));
  Mask boundary = 0;
  Mask next = 0;
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    if (in(mask, v) && (successors(view, Mask{1} << v) & ~mask) != 0) boundary |= Mask{1} << v;
    if (!in(mask, v) && (predecessors(view, Mask{1} << v) & ~mask) == 0) next |= Mask{1} << v;
  }
  ASSERT_EQ(Nodes(family.boundary(set).begin(), family.boundary(set).end()), nodes_of(boundary));
  ASSERT_EQ(Nodes(family.next_nodes(set).begin(), family.next_nodes(set).end()), nodes_of(next));
}

// Checks that the family has exactly the sets `expected`, the smallest first, and describes each correctly.
void expect_family(const ForwardView& view, const LowerSetFamily& family, const std::set<Mask>& expected) {
  std::set<Mask> found;
  for (SetId set = 0; set < family.size(); ++set) {
    ASSERT_TRUE(found.insert(mask_of(family, set, view.num_nodes())).second) << "a set comes twice";
    ASSERT_TRUE(set == 0 || family.count(set - 1) <= family.count(set));
    expect_described(view, family, set);
  }
  ASSERT_EQ(found, expected);
  ASSERT_EQ(family.count(0), 0U);
  ASSERT_EQ(family.count(family.whole()), view.num_nodes());
  for (SetId a = 0; a < family.size(); ++a) {
    for (SetId b = 0; b < family.size(); ++b) {
      const Mask outside = mask_of(family, a, view.num_nodes()) & ~mask_of(family, b, view.num_nodes());
      ASSERT_EQ(family.subset(a, b), outside == 0);
    }
  }
}

std::set<Mask> all_by_definition(const ForwardView& view) {
  std::set<Mask> sets;
  for (Mask mask = 0; mask < Mask{1} << view.num_nodes(); ++mask) {
    if (is_lower(view, mask)) sets.insert(mask);
  }
  return sets;
}

std::set<Mask> ancestors_by_definition(const ForwardView& view) {
  std::set<Mask> sets{0, (Mask{1} << view.num_nodes()) - 1};
  for (NodeId v = 0; v < view.num_nodes(); ++v) {
    Mask set = Mask{1} << v;
    for (Mask before = 0; before != set;) {
      before = set;
      set |= predecessors(view, set);
    }
    sets.insert(set);
  }
  return sets;
}

TEST(LowerSetsTest, MatchTheirDefinitionOnRandomGraphs) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::size_t nodes = seed % 11;
    const ForwardView view = test::random_view(seed, nodes, /*edge_percent=*/seed * 7 % 60 + 10);
    const auto family = all_lower_sets(view, 2000);
    ASSERT_TRUE(family);
    if (family->size() <= 200) {
      expect_family(view, *family, all_by_definition(view));
    } else {
      ASSERT_EQ(family->size(), all_by_definition(view).size());
    }
    expect_family(view, ancestor_sets(view), ancestors_by_definition(view));
  }
}

TEST(LowerSetsTest, AnEmptyGraphHasOneSet) {
  const ForwardView view = test::view_of({}, {}, {});
  for (const LowerSetFamily& family : {*all_lower_sets(view, 1), ancestor_sets(view)}) {
    EXPECT_EQ(family.size(), 1U);
    EXPECT_EQ(family.whole(), 0U);
    EXPECT_EQ(family.bytes(0), 0);
    EXPECT_TRUE(family.next_nodes(0).empty());
    EXPECT_EQ(family.blocks({}).count, 0U);
  }
}

TEST(LowerSetsTest, ASingleNodeHasTwo) {
  const ForwardView view = test::view_of({{}}, {3}, {5});
  for (const LowerSetFamily& family : {*all_lower_sets(view, 2), ancestor_sets(view)}) {
    ASSERT_EQ(family.size(), 2U);
    EXPECT_EQ(family.bytes(1), 5);
    EXPECT_EQ(family.time(1), 3);
    EXPECT_EQ(family.back_bytes(1), 0);
    EXPECT_TRUE(family.boundary(1).empty());
  }
}

TEST(LowerSetsTest, AncestorSetsOfSeveralSinksHoldTheWholeToo) {
  const ForwardView view = test::view_of({{}, {0}, {0}}, {1, 1, 1}, {1, 1, 1});
  const LowerSetFamily family = ancestor_sets(view);
  expect_family(view, family, {0b000, 0b001, 0b011, 0b101, 0b111});
}

TEST(LowerSetsTest, AreRefusedAboveTheLimit) {
  const ForwardView view = test::view_of({{}, {}, {}, {}, {}, {}, {}, {}, {}, {}}, std::vector<std::int64_t>(10, 1),
                                         std::vector<std::int64_t>(10, 1));
  EXPECT_FALSE(all_lower_sets(view, 0));
  EXPECT_FALSE(all_lower_sets(view, 1023));
  ASSERT_TRUE(all_lower_sets(view, 1024));
  EXPECT_EQ(all_lower_sets(view, 1024)->size(), 1024U);
}

TEST(LowerSetsTest, WordsDoNotMatter) {
  for (const std::size_t nodes : {63U, 64U, 65U, 128U, 129U, 200U}) {
    std::vector<std::vector<NodeId>> preds(nodes);
    for (NodeId v = 1; v < nodes; ++v) preds[v] = {v - 1};
    const ForwardView view =
        test::view_of(preds, std::vector<std::int64_t>(nodes, 1), std::vector<std::int64_t>(nodes, 2));
    for (const LowerSetFamily& family : {*all_lower_sets(view, nodes + 1), ancestor_sets(view)}) {
      ASSERT_EQ(family.size(), nodes + 1);
      for (SetId set = 0; set < family.size(); ++set) {
        ASSERT_EQ(family.count(set), set);
        ASSERT_EQ(family.bytes(set), 2 * static_cast<std::int64_t>(set));
        ASSERT_EQ(family.boundary(set).size(), set == 0 || set == nodes ? 0U : 1U);
        ASSERT_EQ(family.next_nodes(set).size(), set == nodes ? 0U : 1U);
      }
    }
  }
}

TEST(LowerSetsTest, ASequenceBecomesBlocks) {
  const ForwardView view = test::view_of({{}, {0}, {0}, {1, 2}}, {1, 1, 1, 1}, {1, 1, 1, 1});
  const LowerSetFamily family = *all_lower_sets(view, 10);  // {} {0} {0,1} {0,2} {0,1,2} V, or with {0,2} before {0,1}
  ASSERT_EQ(family.size(), 6U);
  const SetId with_two = family.contains(2, 2) ? 2 : 3;
  const std::vector<SetId> sequence{1, with_two, family.whole()};
  const Blocks blocks = family.blocks(sequence);
  EXPECT_EQ(blocks.count, 3U);
  EXPECT_EQ(blocks.block, (std::vector<std::uint32_t>{0, 2, 1, 2}));
}

TEST(LowerSetsTest, OtherTimesChangeNothingElse) {
  const ForwardView view = test::random_view(3, 8, 30);
  ForwardView other = view;
  for (std::int64_t& time : other.time) time = time * 5 + 1;
  const LowerSetFamily family = all_lower_sets(view, 300)->with_times_of(other);
  expect_family(other, family, all_by_definition(view));
}

}  // namespace
}  // namespace reprise::detail
