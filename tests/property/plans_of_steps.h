// Plans of two kinds to hold a property against: odd plans of odd steps, and the planners' plans of random steps.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "fixtures/odd_plans.h"
#include "fixtures/odd_steps.h"
#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/random.h"
#include "support/random_step.h"
#include "support/small_tests.h"

namespace reprise::test {

inline constexpr std::uint64_t kOddPlans = kSmallTests ? 150 : 1500;
inline constexpr std::uint64_t kRandomSteps = kOddPlans / 10;

// `check(graph, costs, plan)`, until an assertion fails.
template <typename Check>
void for_odd_plans(Check check) {
  for (std::uint64_t seed = 0; seed < kOddPlans && !testing::Test::HasFatalFailure(); ++seed) {
    const auto [graph, costs] = odd_step(seed);
    const Plan plan = odd_plan(graph, seed);
    SCOPED_TRACE(text_of(plan) + '\n' + format_graph(graph, costs));
    check(graph, costs, plan);
  }
}

// The same for plans that copy, on links of all kinds.
template <typename Check>
void for_odd_copying_plans(Check check) {
  for (std::uint64_t seed = 0; seed < kOddPlans && !testing::Test::HasFatalFailure(); ++seed) {
    auto [graph, costs] = odd_step(seed);
    Random random(seed);
    costs.link = Link{.down_bytes_per_s = (1 + random.below(20)) * 250'000'000,
                      .up_bytes_per_s = (1 + random.below(20)) * 250'000'000,
                      .latency_ns = random.below(5),
                      .both_ways = random.chance(70)};
    const Plan plan = odd_copying_plan(graph, seed);
    SCOPED_TRACE(text_of(plan) + '\n' + format_graph(graph, costs));
    check(graph, costs, plan);
  }
}

// Plans with collectives on up to three communicators; some of them copy, too.
template <typename Check>
void for_odd_overlapping_plans(Check check) {
  for (std::uint64_t seed = 0; seed < kOddPlans && !testing::Test::HasFatalFailure(); ++seed) {
    const int communicators = static_cast<int>(1 + seed % 3);
    auto [graph, costs] = odd_step(seed, {.forward_ops = 8, .backward_ops = 8, .communicators = communicators});
    costs.link = Link{.down_bytes_per_s = 1'000'000'000, .up_bytes_per_s = 2'000'000'000, .latency_ns = 2};
    const Plan plan = seed % 2 == 0 ? odd_plan(graph, seed) : odd_copying_plan(graph, seed);
    SCOPED_TRACE(text_of(plan) + '\n' + format_graph(graph, costs));
    check(graph, costs, plan);
  }
}

inline CostedGraph some_random_step(std::uint64_t seed) {
  Random random(seed);
  const StepOptions options{.forward_ops = random.between(2, 12), .backward_ops = random.between(1, 14)};
  return random_step(options, [&](std::int64_t bound) { return random.below(bound); });
}

template <typename Check>
void for_planners_plans(Check check) {
  for (std::uint64_t seed = 0; seed < kRandomSteps && !testing::Test::HasFatalFailure(); ++seed) {
    const auto [graph, costs] = some_random_step(seed);
    for (const char* planner : {"none", "chen", "lower-sets-approx", "revolve", "auto"}) {
      const Plan plan = solve(graph, costs, {.planner = planner, .knobs = knobs({.candidates = 4})}).plan;
      SCOPED_TRACE(text_of(plan) + '\n' + format_graph(graph, costs));
      check(graph, costs, plan);
    }
  }
}

}  // namespace reprise::test
