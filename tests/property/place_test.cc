// Addresses of odd plans of odd steps and of planners' plans of random ones: they hold before the validator, which
// notices when they are changed, and they are the same the second time.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fixtures/odd_plans.h"
#include "fixtures/odd_steps.h"
#include "place/requests.h"
#include "reprise/reprise.h"
#include "solve/planner_knobs.h"
#include "support/random.h"
#include "support/random_step.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

constexpr std::uint64_t kSeeds = kSmallTests ? 150 : 1500;

void expect_good_addresses(const Graph& graph, const Costs& costs, const Plan& plan) {
  SCOPED_TRACE(text_of(plan) + '\n' + format_graph(graph, costs));
  for (const bool on_top : {false, true}) {
    const PlaceOptions options{.alignment_bytes = 4, .outliving_on_top = on_top};
    const Placement found = place(graph, costs, plan, options);
    ASSERT_EQ(validate_addresses(graph, costs, plan, found), std::nullopt);
    ASSERT_GE(found.arena_bytes, found.load_bytes);
    ASSERT_EQ(place(graph, costs, plan, options), found);
  }
}

bool second_copy_of_held(const Graph& graph, const Plan& plan) {
  return std::ranges::any_of(lives(graph, plan),
                             [&](const Life& life) { return life.second_copy && graph.held(life.value); });
}

TEST(PlaceTest, AddressesOfOddPlansAreGood) {
  for (std::uint64_t seed = 0; seed < kSeeds && !testing::Test::HasFatalFailure(); ++seed) {
    const auto [graph, costs] = odd_step(seed);
    expect_good_addresses(graph, costs, odd_plan(graph, seed));
  }
}

TEST(PlaceTest, AddressesOfPlannersPlansAreGood) {
  for (std::uint64_t seed = 0; seed < kSeeds / 10 && !testing::Test::HasFatalFailure(); ++seed) {
    Random random(seed);
    const StepOptions options{.forward_ops = random.between(2, 12), .backward_ops = random.between(1, 14)};
    const auto [graph, costs] = random_step(options, [&](std::int64_t bound) { return random.below(bound); });
    for (const char* planner : {"none", "chen", "revolve", "auto"}) {
      expect_good_addresses(graph, costs,
                            solve(graph, costs, {.planner = planner, .knobs = knobs({.candidates = 4})}).plan);
    }
  }
}

// Where versions of one storage lie either all outside or all inside, it can be told value by value; without the bytes
// of what lies outside, the simulator's peak is the load.
TEST(PlaceTest, TheLoadIsThePeakOfWhatLiesInside) {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto [graph, costs] = odd_step(seed);
    const Plan plan = odd_plan(graph, seed);
    const auto outside = [&graph = graph](ValueId v) {
      const bool made = graph.residence(v) == Residence::kPlanned && graph.producer(v) != graph.caller_op();
      return !made || graph.held(v);
    };
    Costs inside = costs;
    bool clear = true;
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      const ValueId v = value_id(i), old = graph.overwrites(v);
      if (outside(v)) inside.value_bytes[i] = 0;
      clear &= old == kNoValue || outside(v) == outside(old);
    }
    if (!clear) continue;
    inside.workspace_bytes[index(graph.caller_op())] = 0;
    // A second copy of a held value lies inside.
    if (second_copy_of_held(graph, plan)) continue;
    ASSERT_EQ(place(graph, costs, plan, {.alignment_bytes = 1}).load_bytes, simulate(graph, inside, plan).peak_bytes)
        << text_of(plan) << '\n'
        << format_graph(graph, costs);
    ++compared;
  }
  EXPECT_GT(compared, kSeeds / 100);
}

// An address that is missing, that is there twice, or at which something else is live.
TEST(PlaceTest, TheValidatorNoticesChanges) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto [graph, costs] = odd_step(seed);
    const Plan plan = odd_plan(graph, seed);
    const Placement found = place(graph, costs, plan, {.alignment_bytes = 1});
    if (found.addresses.empty()) continue;
    Random random(seed);
    const auto any = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(found.addresses.size())));
    Placement changed = found;
    changed.addresses.erase(changed.addresses.begin() + static_cast<std::ptrdiff_t>(any));
    ASSERT_NE(validate_addresses(graph, costs, plan, changed), std::nullopt) << text_of(plan);
    changed = found;
    changed.addresses.push_back(found.addresses[any]);
    ASSERT_NE(validate_addresses(graph, costs, plan, changed), std::nullopt) << text_of(plan);
    const std::vector<detail::Request> asked = detail::requests(graph, costs, plan);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (i == any || asked[i].buffer.begin >= asked[any].buffer.end ||
          asked[any].buffer.begin >= asked[i].buffer.end) {
        continue;
      }
      changed = found;
      changed.addresses[any].offset = found.addresses[i].offset;
      changed.arena_bytes = found.arena_bytes + asked[any].buffer.bytes;
      ASSERT_NE(validate_addresses(graph, costs, plan, changed), std::nullopt) << text_of(plan);
    }
  }
}

}  // namespace
}  // namespace reprise::test
