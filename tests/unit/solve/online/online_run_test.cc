#include "solve/online/online_run.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "reprise/graph_builder.h"
#include "reprise/reprise.h"
#include "support/costed.h"

namespace reprise::detail {
namespace {

constexpr OnlineRules kAsPublished{.ghosts_first = false, .oldest_first = false};

std::optional<OnlineCourse> course_at(const CostedGraph& step, std::int64_t budget_bytes,
                                      const OnlineRules& rules = {}) {
  const OnlineView known(step.graph, step.costs);
  return OnlineRun(known, {.budget_bytes = budget_bytes, .rules = rules}).course();
}

std::vector<std::size_t> runs_of(const std::optional<OnlineCourse>& course) {
  std::vector<std::size_t> runs;
  if (!course) return runs;
  for (const OpId op : course->runs) runs.push_back(index(op));
  return runs;
}

using Runs = std::vector<std::size_t>;

// Ops of a step by hand: what each makes is a value of its own.
class Hand {
 public:
  ValueId op(std::vector<ValueId> inputs, std::int64_t time_ns, std::int64_t bytes, Phase phase = Phase::kForward) {
    const ValueId made = builder_.value(bytes);
    builder_.op({.name = "op", .phase = phase, .time_ns = time_ns, .inputs = std::move(inputs), .outputs = {made}});
    return made;
  }
  ValueId caller(ValueId read, std::int64_t bytes) { return op({read}, 10, bytes, Phase::kCaller); }
  ValueId backward(std::vector<ValueId> inputs, std::int64_t bytes) {
    return op(std::move(inputs), 10, bytes, Phase::kBackward);
  }
  CostedGraph step(ValueId output) {
    builder_.output(output);
    return builder_.build();
  }
  GraphBuilder& builder() { return builder_; }

 private:
  GraphBuilder builder_{"by hand"};
};

// x -> a -> b -> c, 100 bytes and 10 ns each, and gradients of 10 bytes. The run itself keeps x, from which a might be
// computed again, so as it is it counts x, a, b, c and two gradients: 420.
CostedGraph three_layers() {
  Hand hand;
  const ValueId x = hand.builder().arriving(100);
  const ValueId a = hand.op({x}, 10, 100);
  const ValueId b = hand.op({a}, 10, 100);
  const ValueId c = hand.op({b}, 10, 100);
  const ValueId dc = hand.caller(c, 10);
  const ValueId db = hand.backward({c, dc}, 10);
  const ValueId da = hand.backward({b, db}, 10);
  return hand.step(hand.backward({a, da}, 10));
}

TEST(OnlineRunTest, WithEnoughMemoryNothingRunsAgain) {
  const std::optional<OnlineCourse> course = course_at(three_layers(), 420);
  EXPECT_EQ(runs_of(course), (Runs{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(course->peak_bytes, 420);
  EXPECT_EQ(course->recompute_ns, 0);
}

// To make c, one of a and b has to go, and b is being read. Highest is the first backward op: x, b, c, dc and db.
TEST(OnlineRunTest, WhatIsReadAgainComesBack) {
  const CostedGraph step = three_layers();
  const std::optional<OnlineCourse> course = course_at(step, 330);
  EXPECT_EQ(runs_of(course), (Runs{0, 1, 2, 3, 4, 5, 0, 6}));
  EXPECT_EQ(course->peak_bytes, 320);
  EXPECT_EQ(course->recompute_ns, 10);
  EXPECT_EQ(runs_of(course_at(step, 320)), runs_of(course)) << "what a run counts is a budget that gives the same run";
  EXPECT_EQ(course_at(step, 419)->peak_bytes, 410) << "a goes only when backward begins";
}

// Below, b has to go while c is made from it: there is nothing else.
TEST(OnlineRunTest, NothingLeftToEvict) {
  EXPECT_FALSE(course_at(three_layers(), 299));
  EXPECT_FALSE(course_at(three_layers(), 99)) << "x alone is more";
}

// p is old and expensive, q new and cheap. At 120 ns, when r needs 100 bytes of 250:
//   h(p) = 30 / (100 * 50) = 0.006, h(q) = 10 / (100 * 10) = 0.01: p goes.
// If p comes from t, which took 40 ns and is gone, h(p) = (30 + 40) / (100 * 50) = 0.014: q goes.
CostedGraph old_and_new(bool p_reads_t) {
  Hand hand;
  const ValueId x = hand.builder().resident(0);
  const ValueId t = hand.op({x}, 40, 100);
  const ValueId p = hand.op({p_reads_t ? t : x}, 30, 100);
  const ValueId z = hand.op({x}, 30, 0);
  const ValueId q = hand.op({x}, 10, 100);
  const ValueId y = hand.op({x}, 10, 0);
  const ValueId r = hand.op({x}, 10, 100);
  const ValueId seed = hand.caller(r, 0);
  return hand.step(hand.backward({p, q, y, z, seed}, 0));
}

TEST(OnlineRunTest, CostAndAgeAndNeighboursDecide) {
  EXPECT_EQ(runs_of(course_at(old_and_new(/*p_reads_t=*/false), 250)), (Runs{0, 1, 2, 3, 4, 5, 6, 1, 7}));
  EXPECT_EQ(runs_of(course_at(old_and_new(/*p_reads_t=*/true), 250)), (Runs{0, 1, 2, 3, 4, 5, 6, 3, 7}));
}

// p was evicted for r. Its return brings t back, which nobody holds. Op 5 then needs 100 of 300 bytes, which t, p and q
// fill: h(t) = 40 / (100 * 91) is above h(q) = 1 / (100 * 80), so as published q goes, although op 6 reads it.
TEST(OnlineRunTest, GhostsGoFirst) {
  Hand hand;
  const ValueId x = hand.builder().resident(0);
  const ValueId t = hand.op({x}, 40, 100);
  const ValueId p = hand.op({t}, 30, 100);
  const ValueId q = hand.op({x}, 1, 100);
  const ValueId r = hand.op({q}, 10, 200);
  const ValueId seed = hand.caller(r, 0);
  const ValueId w = hand.backward({p, seed}, 100);
  const CostedGraph step = hand.step(hand.backward({q, w}, 0));
  EXPECT_EQ(runs_of(course_at(step, 300, kAsPublished)), (Runs{0, 1, 2, 3, 4, 0, 1, 5, 2, 6}));
  EXPECT_EQ(runs_of(course_at(step, 300)), (Runs{0, 1, 2, 3, 4, 0, 1, 5, 6}));
}

// Op 7 lacks bn, which comes from k, and skip, which comes from m of 300 bytes. If bn comes back first, it lies there
// while skip is computed, and k has to go; then m can go instead.
TEST(OnlineRunTest, TheOldestInputComesBackFirst) {
  Hand hand;
  const ValueId x = hand.builder().resident(0);
  const ValueId m = hand.op({x}, 10, 300);
  const ValueId skip = hand.op({m}, 10, 100);
  const ValueId k = hand.op({x}, 1000, 100);
  const ValueId bn = hand.op({k}, 10, 100);
  const ValueId y = hand.op({bn, skip}, 1, 0);
  const ValueId big = hand.op({y}, 10, 400);
  const ValueId seed = hand.caller(big, 0);
  const ValueId z = hand.backward({bn, skip, seed}, 0);
  const CostedGraph step = hand.step(hand.backward({k, z}, 0));
  OnlineRules in_order;
  in_order.oldest_first = false;
  EXPECT_EQ(runs_of(course_at(step, 500, in_order)), (Runs{0, 1, 2, 3, 4, 5, 6, 3, 0, 1, 7, 2, 8}));
  EXPECT_EQ(runs_of(course_at(step, 500)), (Runs{0, 1, 2, 3, 4, 5, 6, 0, 1, 3, 7, 8}));
}

// A chain of equal layers: with memory for about twice the root of its length, the number of runs is linear in it.
TEST(OnlineRunTest, RunsOfALongChainAreLinearInItsLength) {
  for (const auto& [layers, root] : {std::pair{100, 10}, {400, 20}, {900, 30}, {2500, 50}}) {
    Hand hand;
    std::vector<ValueId> x{hand.builder().resident(0)};
    for (int i = 0; i < layers; ++i) x.push_back(hand.op({x.back()}, 10, 1));
    ValueId gradient = hand.caller(x.back(), 1);
    for (auto i = static_cast<std::size_t>(layers); i > 0; --i) gradient = hand.backward({x[i - 1], gradient}, 1);
    const CostedGraph step = hand.step(gradient);
    for (const OnlineRules& rules : {OnlineRules{}, kAsPublished}) {
      const std::optional<OnlineCourse> course = course_at(step, 2 * root + 4, rules);
      ASSERT_TRUE(course.has_value());
      EXPECT_LE(course->runs.size(), 4 * static_cast<std::size_t>(layers)) << layers;
    }
  }
}

}  // namespace
}  // namespace reprise::detail
