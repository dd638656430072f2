// Compares the chain planners of least memory with all subsets of checkpoints and with the quadratic recurrence.
#include <gtest/gtest.h>

#include "oracle/chain_reference.h"
#include "solve/chain/chen_chain.h"
#include "solve/chain/dynamic_chain.h"
#include "solve/chain/feng_huang.h"
#include "solve/chain/static_chain.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

using detail::ByteSpan;
using detail::ChainAnswer;
using detail::SegmentMemory;

constexpr int kPeakRounds = kSmallTests ? 40 : 1200;

TEST(ChainPeakTest, DynamicMatchesAllSubsets) {
  Random random(1);
  for (int round = 0; round < kPeakRounds * kChainKinds; ++round) {
    const auto n = static_cast<std::uint32_t>(random.between(1, round % 20 == 0 ? 12 : 9));
    const Sizes d = random_sizes(random, round % kChainKinds, n);
    for (const std::int64_t base : {d.back(), 2 * d.back(), std::int64_t{0}}) {
      const ChainAnswer answer = detail::least_peak(d, base);
      ASSERT_EQ(answer.peak_bytes,
                least_over_subsets(1, n - 1, [&](const Checkpoints& c) { return dynamic_cost(d, c, base); }));
      ASSERT_EQ(answer.peak_bytes, dynamic_cost(d, answer.checkpoints, base));
      ASSERT_EQ(answer.peak_bytes, detail::dynamic_peak(d, answer.checkpoints, base));
    }
  }
}

TEST(ChainPeakTest, EverySuffixMatchesTheQuadraticRecurrence) {
  Random random(2);
  for (int round = 0; round < kPeakRounds; ++round) {
    const Sizes d = random_sizes(random, round % kChainKinds, static_cast<std::uint32_t>(random.between(1, 60)));
    const Sizes peaks = quadratic_peaks(d, d.back());
    for (std::size_t i = 0; i < d.size(); ++i) {
      ASSERT_EQ(detail::least_peak(ByteSpan(d).subspan(i), d.back()).peak_bytes, peaks[i]);
    }
  }
}

TEST(ChainPeakTest, LongChainsMatchTheQuadraticRecurrence) {
  Random random(3);
  for (int round = 0; round < kPeakRounds / 4; ++round) {
    const Sizes d = random_sizes(random, round % kChainKinds, static_cast<std::uint32_t>(random.between(200, 1500)));
    const ChainAnswer answer = detail::least_peak(d, 2 * d.back());
    ASSERT_EQ(answer.peak_bytes, quadratic_peaks(d, 2 * d.back())[0]);
    ASSERT_EQ(answer.peak_bytes, dynamic_cost(d, answer.checkpoints, 2 * d.back()));
  }
}

TEST(ChainPeakTest, StaticMatchesAllSubsets) {
  const std::pair<SegmentMemory, Buffer> kinds[] = {{SegmentMemory::kChen, Buffer::kNone},
                                                    {SegmentMemory::kLiteral, Buffer::kLiteral},
                                                    {SegmentMemory::kRepaired, Buffer::kAlways}};
  Random random(4);
  for (int round = 0; round < kPeakRounds * kChainKinds; ++round) {
    const auto n = static_cast<std::uint32_t>(random.between(1, round % 20 == 0 ? 11 : 8));
    const Sizes d = random_sizes(random, round % kChainKinds, n);
    for (const auto& [memory, buffer] : kinds) {
      const auto cost = [&, b = buffer](const Checkpoints& c) { return static_cost(d, c, b); };
      const ChainAnswer answer = detail::least_static_peak(d, memory);
      ASSERT_EQ(answer.peak_bytes, least_over_subsets(1, n, cost));
      ASSERT_EQ(answer.peak_bytes, cost(answer.checkpoints));
      ASSERT_EQ(answer.peak_bytes, detail::static_peak(d, answer.checkpoints, memory));
    }
  }
}

TEST(ChainPeakTest, ShortestPathsFindTheStaticOptimum) {
  Random random(5);
  for (int round = 0; round < kPeakRounds; ++round) {
    const Sizes d = random_sizes(random, round % kChainKinds, static_cast<std::uint32_t>(random.between(1, 40)));
    const ChainAnswer answer = detail::feng_huang(d);
    ASSERT_EQ(answer.peak_bytes, detail::least_static_peak(d, SegmentMemory::kChen).peak_bytes);
    ASSERT_EQ(answer.peak_bytes, static_cost(d, answer.checkpoints, Buffer::kNone));
  }
}

Checkpoints interior(Checkpoints c, const Sizes& d) {
  if (!c.empty() && c.back() + 1 == d.size()) c.pop_back();
  return c;
}

TEST(ChainPeakTest, NoOtherPlanNeedsLessThanTheDynamicOne) {
  Random random(6);
  for (int round = 0; round < kPeakRounds; ++round) {
    const auto n = static_cast<std::uint32_t>(random.between(1, 200));
    const Sizes d = random_sizes(random, round % kChainKinds, n);
    const std::int64_t base = 2 * d.back();
    const std::int64_t least = detail::least_peak(d, base).peak_bytes;
    for (const SegmentMemory memory : {SegmentMemory::kChen, SegmentMemory::kLiteral, SegmentMemory::kRepaired}) {
      const Checkpoints c = interior(detail::least_static_peak(d, memory).checkpoints, d);
      ASSERT_LE(least, dynamic_cost(d, c, base));
    }
    ASSERT_LE(least, dynamic_cost(d, detail::chen_uniform(n), base));
    const ChainAnswer searched = detail::chen_search(d);
    ASSERT_LE(least, searched.peak_bytes);
    ASSERT_EQ(searched.peak_bytes, dynamic_cost(d, searched.checkpoints, base));
    for (std::size_t k = 1; k < d.size(); ++k) ASSERT_GE(least, d[k - 1] + d[k]);
  }
}

TEST(ChainPeakTest, ScalesWithTheSizesAndIgnoresEmptyTensors) {
  Random random(7);
  for (int round = 0; round < kPeakRounds; ++round) {
    Sizes d = random_sizes(random, round % kChainKinds, static_cast<std::uint32_t>(random.between(1, 50)));
    const std::int64_t least = detail::least_peak(d, 2 * d.back()).peak_bytes;
    Sizes scaled = d;
    for (std::int64_t& bytes : scaled) bytes *= 1000;
    ASSERT_EQ(detail::least_peak(scaled, 2 * scaled.back()).peak_bytes, 1000 * least);
    d.insert(d.begin() + random.between(0, static_cast<int>(d.size()) - 1), 0);
    ASSERT_LE(detail::least_peak(d, 2 * d.back()).peak_bytes, least);
  }
}

}  // namespace
}  // namespace reprise::test
