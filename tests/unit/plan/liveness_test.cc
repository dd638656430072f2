// Frees by liveness are the best ones: no legal plan with the same runs has a lower peak (checked on tiny steps by
// dynamic programming over all plans), and neither has an odd plan of a larger step.
#include "plan/liveness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "fixtures/odd_plans.h"
#include "fixtures/odd_steps.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "support/small_tests.h"

namespace reprise::detail {
namespace {

constexpr std::uint64_t kLivenessSeeds = test::kSmallTests ? 100 : 2000;
constexpr std::uint64_t kTinyLivenessSeeds = test::kSmallTests ? 30 : 400;

using Set = std::uint64_t;  // bit v: value v is in the set

constexpr Set bit(ValueId v) { return Set{1} << index(v); }

// The lowest peak for one order of runs, over all choices of frees and of computing in place.
class LowestPeak {
 public:
  LowestPeak(const Graph& graph, const Costs& costs, const std::vector<OpId>& runs)
      : graph_(graph), costs_(costs), runs_(runs) {}

  std::int64_t find() {
    Set live = 0;
    Set pinned = 0;
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      if (graph_.residence(value_id(i)) == Residence::kPlanned) continue;
      live |= bit(value_id(i));
      if (graph_.pinned(value_id(i))) pinned |= bit(value_id(i));
    }
    return from(0, live, pinned);
  }

 private:
  static constexpr std::int64_t kNone = std::int64_t{1} << 62;

  [[nodiscard]] std::int64_t bytes(Set live) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      if ((live & bit(value_id(i))) != 0) sum += costs_.value_bytes[i];
    }
    return sum;
  }

  std::int64_t from(std::size_t run, Set live, Set pinned) {
    const auto [it, fresh] = memo_.try_emplace({run, live, pinned}, kNone);
    if (!fresh) return it->second;
    std::int64_t best = kNone;
    if (run == runs_.size()) {
      const auto outputs = graph_.step_outputs();
      if (std::ranges::all_of(outputs, [&](ValueId v) { return (live & bit(v)) != 0; })) best = bytes(live);
    } else {
      best = std::min(compute(run, live, pinned, false), compute(run, live, pinned, true));
    }
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      if ((live & ~pinned & bit(value_id(i))) == 0) continue;
      best = std::min(best, std::max(bytes(live), from(run, live & ~bit(value_id(i)), pinned)));
    }
    return memo_[{run, live, pinned}] = best;
  }

  std::int64_t compute(std::size_t run, Set live, Set pinned, bool in_place) {
    const OpId op = runs_[run];
    for (const ValueId v : graph_.inputs(op)) {
      if ((live & bit(v)) == 0) return kNone;
    }
    std::int64_t during = bytes(live) + costs_.workspace_bytes[index(op)];
    bool any = false;
    for (const ValueId v : graph_.outputs(op)) {
      const ValueId old = graph_.overwrites(v);
      if (in_place && old != kNoValue) {
        if ((live & bit(v)) != 0) return kNone;
        any = true;
        live &= ~bit(old);
        if ((pinned & bit(old)) != 0) pinned = (pinned & ~bit(old)) | bit(v);
      } else {
        during += costs_.value_bytes[index(v)];
      }
      if (graph_.held(v)) pinned |= bit(v);
    }
    if (in_place && !any) return kNone;
    for (const ValueId v : graph_.outputs(op)) live |= bit(v);
    return std::max(during, from(run + 1, live, pinned));
  }

  const Graph& graph_;
  const Costs& costs_;
  const std::vector<OpId>& runs_;
  std::map<std::tuple<std::size_t, Set, Set>, std::int64_t> memo_;
};

// Whether the step overwrites a value that the caller holds. If the op that makes the value runs again, it can pay to
// overwrite it only the last time, but place_frees does so the first time.
bool overwrites_what_it_gave_away(const Graph& graph) {
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const ValueId old = graph.overwrites(value_id(i));
    if (old != kNoValue && graph.held(old)) return true;
  }
  return false;
}

TEST(LivenessTest, NoPlanWithTheSameRunsHasALowerPeak) {
  for (std::uint64_t seed = 0; seed < kTinyLivenessSeeds; ++seed) {
    const auto [graph, costs] = test::odd_step(seed, {.forward_ops = 3, .backward_ops = 1});
    if (overwrites_what_it_gave_away(graph)) continue;
    const std::vector<OpId> runs = test::runs_of(test::odd_plan(graph, seed));
    const Plan plan = place_frees(graph, runs);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + test::text_of(plan) + "\n" + format_graph(graph, costs));
    const auto violation = validate(graph, plan);
    ASSERT_FALSE(violation) << violation->message;
    ASSERT_EQ(test::runs_of(plan), runs);
    ASSERT_EQ(simulate(graph, costs, plan).peak_bytes, LowestPeak(graph, costs, runs).find());
  }
}

TEST(LivenessTest, IsLegalAndNeverAboveAnOddPlan) {
  for (std::uint64_t seed = 0; seed < kLivenessSeeds; ++seed) {
    const auto [graph, costs] = test::odd_step(seed, {.forward_ops = 12, .backward_ops = 12});
    const Plan odd = test::odd_plan(graph, seed);
    const Plan plan = place_frees(graph, test::runs_of(odd));
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + test::text_of(plan) + "\n" + format_graph(graph, costs));
    const auto violation = validate(graph, plan);
    ASSERT_FALSE(violation) << violation->message;
    ASSERT_LE(simulate(graph, costs, plan).peak_bytes, simulate(graph, costs, odd).peak_bytes);
    ASSERT_EQ(simulate(graph, costs, plan).time_ns, simulate(graph, costs, odd).time_ns);
  }
}

// x -> y -> z -> loss, where z overwrites y. The values are 0 x, 1 y, 2 z, 3 loss, 4 unused, 5 extra.
Graph example() {
  GraphBuilder b;
  const ValueId x = b.arriving(1), y = b.value(2), z = b.value(2), loss = b.value(1), unused = b.arriving(8);
  const ValueId extra = b.value(3);
  b.overwrite(z, y);
  b.output(loss);
  b.op({.name = "conv", .inputs = {x}, .outputs = {y}});
  b.op({.name = "relu_", .inputs = {y}, .outputs = {z, extra}});
  b.op({.name = "loss", .inputs = {z}, .outputs = {loss}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  static_cast<void>(unused);
  return b.build().graph;
}

TEST(LivenessTest, FreesAtOnceWhatNobodyReads) {
  const std::vector<OpId> runs{op_id(0), op_id(1), op_id(2), op_id(3)};
  EXPECT_EQ(test::text_of(place_frees(example(), runs)), "f4 c0 f0 c1! f5 c2 f2 c3");
}

TEST(LivenessTest, EndsALifeBeforeTheNextBegins) {
  const std::vector<OpId> runs{op_id(0), op_id(1), op_id(2), op_id(3), op_id(0), op_id(1), op_id(2)};
  EXPECT_EQ(test::text_of(place_frees(example(), runs)), "f4 c0 c1! f5 c2 f2 f3 c3 c0 f0 c1! f5 c2 f2");
}

TEST(LivenessTest, CopiesWhereTheOldContentsAreReadAgain) {
  const std::vector<OpId> runs{op_id(0), op_id(1), op_id(2), op_id(3), op_id(1), op_id(2)};
  EXPECT_EQ(test::text_of(place_frees(example(), runs)), "f4 c0 f0 c1 f5 c2 f2 f3 c3 c1! f5 c2 f2");
}

// The model's output is made in place and held by the caller. As in eager, there is no second buffer.
TEST(LivenessTest, AHeldValueMayBeMadeInPlace) {
  GraphBuilder b;
  const ValueId x = b.arriving(1), y = b.value(50), z = b.value(50);
  b.overwrite(z, y);
  b.hold(z);
  b.output(z);
  b.op({.name = "conv", .inputs = {x}, .outputs = {y}});
  b.op({.name = "sigmoid_", .inputs = {y}, .outputs = {z}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {z}, .outputs = {}});
  const auto [graph, costs] = b.build();
  const std::vector<OpId> once{op_id(0), op_id(1), op_id(2)};
  EXPECT_EQ(test::text_of(place_frees(graph, once)), "c0 f0 c1! c2");
  // If it is made again, that is a second copy beside the caller's.
  const std::vector<OpId> twice{op_id(0), op_id(1), op_id(2), op_id(0), op_id(1)};
  EXPECT_EQ(test::text_of(place_frees(graph, twice)), "c0 c1! c2 c0 f0 c1 f1");
}

TEST(LivenessTest, NewContentsOfResidentMemoryAreNeverFreed) {
  GraphBuilder b;
  const ValueId stat = b.resident(4), middle = b.value(4), last = b.value(4);
  b.overwrite(middle, stat);
  b.overwrite(last, middle);
  b.output(last);
  b.op({.name = "mul_", .once = true, .inputs = {stat}, .outputs = {middle}});
  b.op({.name = "add_", .once = true, .inputs = {middle}, .outputs = {last}});
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  const std::vector<OpId> runs{op_id(0), op_id(1), op_id(2)};
  EXPECT_EQ(test::text_of(place_frees(b.build().graph, runs)), "c0! c1! c2");
}

TEST(LivenessTest, NoRunsNoActions) {
  GraphBuilder b;
  b.op({.name = "caller", .phase = Phase::kCaller, .inputs = {}, .outputs = {}});
  EXPECT_TRUE(place_frees(b.build().graph, {}).actions.empty());
}

}  // namespace
}  // namespace reprise::detail
