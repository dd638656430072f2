#include "solve/auto/max_flow.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"

namespace reprise::test {
namespace {

using detail::MaxFlow;

struct Arc {
  std::uint32_t from;
  std::uint32_t to;
  std::int64_t capacity;
};

MaxFlow network_of(const std::vector<Arc>& arcs, std::uint32_t nodes) {
  MaxFlow flow;
  for (const Arc& arc : arcs) flow.set_capacity(flow.add_arc(arc.from, arc.to), arc.capacity);
  flow.freeze(nodes);
  return flow;
}

// The capacity of all arcs from a set of nodes, which has the source and not the sink, to the other nodes.
std::int64_t crossing(const std::vector<Arc>& arcs, std::uint32_t set) {
  std::int64_t sum = 0;
  for (const Arc& arc : arcs) sum += (set >> arc.from & 1U) != 0 && (set >> arc.to & 1U) == 0 ? arc.capacity : 0;
  return sum;
}

TEST(MaxFlowTest, CutsAPathAtItsNarrowestArc) {
  MaxFlow flow = network_of({{0, 2, 3}, {2, 3, 2}, {3, 1, 4}}, 4);
  EXPECT_EQ(flow.solve(), 2);
  EXPECT_FALSE(flow.with_sink(2));
  EXPECT_TRUE(flow.with_sink(3));
}

TEST(MaxFlowTest, IsTheLeastOfAllCutsOfSmallNetworks) {
  constexpr std::uint32_t kNodes = 7;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<Arc> arcs;
    for (int i = random.between(4, 22); i > 0; --i) {
      const auto from = static_cast<std::uint32_t>(random.below(kNodes));
      const auto to = static_cast<std::uint32_t>(random.below(kNodes));
      if (from != to) arcs.push_back({from, to, random.below(20)});
    }
    std::int64_t least = MaxFlow::kUnlimited;
    for (std::uint32_t set = 1; set < 1U << kNodes; ++set) {
      if ((set & 1U) != 0 && (set & 2U) == 0) least = std::min(least, crossing(arcs, set));
    }
    MaxFlow flow = network_of(arcs, kNodes);
    for (int again = 0; again < 2; ++again) EXPECT_EQ(flow.solve(), least) << "seed " << seed;
    std::uint32_t with_source = 0;
    for (std::uint32_t n = 0; n < kNodes; ++n) with_source |= flow.with_sink(n) ? 0 : 1U << n;
    EXPECT_EQ(crossing(arcs, with_source), least) << "seed " << seed;
  }
}

TEST(MaxFlowTest, SaysWhereNoCutIsLimited) {
  MaxFlow flow = network_of({{0, 2, MaxFlow::kUnlimited}, {2, 1, MaxFlow::kUnlimited}, {0, 1, 5}}, 3);
  EXPECT_GE(flow.solve(), MaxFlow::kUnlimited);
}

}  // namespace
}  // namespace reprise::test
