#include "solve/carry/relieved.h"

#include <gtest/gtest.h>

#include <vector>

#include "fixtures/steps.h"
#include "reprise/graph_builder.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"

namespace reprise::detail {
namespace {

// A chain of forward ops of 10 ns, each of which makes 100 bytes that its backward op of 20 ns reads.
CostedGraph chain(std::size_t length) {
  GraphBuilder builder("chain");
  std::vector<ValueId> values{builder.arriving(10)};
  for (std::size_t i = 0; i < length; ++i) {
    values.push_back(builder.value(100));
    builder.op({.name = "f", .time_ns = 10, .inputs = {values[i]}, .outputs = {values[i + 1]}});
  }
  ValueId gradient = builder.value(10);
  builder.op({.name = "caller", .phase = Phase::kCaller, .outputs = {gradient}});
  for (std::size_t i = length; i > 0; --i) {
    const ValueId next = builder.value(10);
    builder.op(
        {.name = "b", .phase = Phase::kBackward, .time_ns = 20, .inputs = {values[i], gradient}, .outputs = {next}});
    gradient = next;
  }
  builder.output(gradient);
  return std::move(builder).build();
}

TEST(RelievedTest, FasterPacesHaveBasesThatNeedMoreMemoryAndLessTime) {
  const auto [graph, costs] = chain(20);
  const Problem problem(graph, costs);
  const Plan plain = problem.plan(problem.one_block(), /*keep_last=*/true, Expansion::kLean);
  const std::int64_t peak = simulate(graph, costs, plain).peak_bytes;
  const SolveOptions options{.budget_bytes = peak - 1'000};
  std::vector<double> paces;
  std::vector<Simulation> found;
  RelievedSearch(problem, options, plain).run(5, 1'000, [&](const Plan& base, double pace) {
    ASSERT_FALSE(validate(graph, base));
    paces.push_back(pace);
    found.push_back(simulate(graph, costs, base));
  });
  ASSERT_GT(found.size(), 20U);
  for (std::size_t i = 1; i < found.size(); ++i) EXPECT_GT(paces[i], paces[i - 1]);
  EXPECT_LE(paces.back(), 5);
  EXPECT_GT(found.front().recompute_ns, 0);
  EXPECT_GT(found.back().peak_bytes, found.front().peak_bytes);
  EXPECT_LT(found.back().time_ns, found.front().time_ns);

  EXPECT_LE(found.back().recompute_ns, 10);  // At 5 bytes per ns, forward's 200 ns are just enough for the excess.
}

}  // namespace
}  // namespace reprise::detail
