// Plans that store values in the host's memory and fetch them again.
// Ops: F1 0, F2 1, F3 2, caller 3, B3 4, B2 5, B1 6. Values: a 0, b 1, c 2 of 100 bytes; g 3, h 4, i 5 of 10 bytes.
#include <gtest/gtest.h>

#include "fixtures/naive_replay.h"
#include "fixtures/steps.h"
#include "reprise/io.h"
#include "reprise/lives.h"
#include "reprise/place.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "support/input_error.h"
#include "support/short_actions.h"

namespace reprise {
namespace {

using test::b;
using test::c;
using test::f;
using test::s;

const Plan kKept{.actions = {c(0), c(1), c(2), c(3), c(4), f(2), c(5), f(1), f(3), c(6), f(0), f(4)}};
const Plan kCarried{
    .actions = {c(0), s(0), c(1), f(0), c(2), c(3), c(4), f(2), b(0), c(5), f(1), f(3), c(6), f(0), f(4)}};

TEST(CopiesTest, CostNoTimeOnAFastLink) {
  const auto [graph, costs] = test::three_layers_step();
  ASSERT_FALSE(validate(graph, kKept));
  ASSERT_FALSE(validate(graph, kCarried));
  EXPECT_EQ(simulate(graph, costs, kKept), (Simulation{.peak_bytes = 310, .time_ns = 60}));
  EXPECT_EQ(simulate(graph, test::with_link(costs, 10), kCarried),
            (Simulation{.peak_bytes = 220, .time_ns = 60, .host_peak_bytes = 100}));
}

TEST(CopiesTest, MakeTheDeviceWaitOnASlowLinkAndLeaveMemoryAsItIs) {
  const auto [graph, costs] = test::three_layers_step();
  EXPECT_EQ(simulate(graph, test::with_link(costs, 5), kCarried),
            (Simulation{.peak_bytes = 220, .time_ns = 80, .wait_ns = 20, .host_peak_bytes = 100}));
  const Timeline slow = timeline(graph, test::with_link(costs, 5), kCarried);
  const Timeline naive = test::NaiveReplay(graph, costs).run(kCarried);
  EXPECT_EQ(slow.during_bytes, naive.during_bytes);
  EXPECT_EQ(slow.after_bytes, naive.after_bytes);
  // The copy to the host goes on beside F2, the free waits for its end, and B1 waits for the copy back.
  EXPECT_EQ(slow.begin_ns[1], 10);
  EXPECT_EQ(slow.end_ns[1], 30);
  EXPECT_EQ(slow.end_ns[3], 30);
  EXPECT_EQ(slow.begin_ns[8], 50);
  EXPECT_EQ(slow.end_ns[8], 70);
  EXPECT_EQ(slow.begin_ns[12], 70);
}

TEST(CopiesTest, TakeTheirLatencyEach) {
  const auto [graph, costs] = test::three_layers_step();
  EXPECT_EQ(simulate(graph, test::with_link(costs, 10, /*latency_ns=*/3), kCarried).wait_ns, 6);
}

TEST(CopiesTest, WaitForEachOtherIfTheLinkGoesOneWayAtATime) {
  const auto [graph, costs] = test::three_layers_step();
  const Plan crossing{.actions = {c(0), s(0), c(1), f(0), b(0), s(1), c(2), f(1), c(3), c(4), f(2), b(1), c(5), f(1),
                                  f(3), c(6), f(0), f(4)}};
  ASSERT_FALSE(validate(graph, crossing));
  EXPECT_EQ(simulate(graph, test::with_link(costs, 10), crossing).wait_ns, 10);
  EXPECT_EQ(simulate(graph, test::with_link(costs, 10, 0, /*both_ways=*/false), crossing).wait_ns, 20);
}

TEST(CopiesTest, HaveLivesOnBothSides) {
  const auto [graph, costs] = test::three_layers_step();
  const std::vector<HostLife> expected{{.value = value_id(0), .first = 1, .last = 12}};
  EXPECT_EQ(host_lives(graph, kCarried), expected);
  std::vector<Life> of_a;
  for (const Life& life : lives(graph, kCarried)) {
    if (life.value == value_id(0)) of_a.push_back(life);
  }
  ASSERT_EQ(of_a.size(), 2U);
  EXPECT_EQ(of_a[1], (Life{.value = value_id(0), .first = 8, .last = 13}));
}

TEST(CopiesTest, AreWaitedForWhereTheValueGoesAndWhereItIsRead) {
  const auto [graph, costs] = test::three_layers_step();
  const std::vector<CopyWait> expected{{.action = 3, .value = value_id(0), .for_fetch = false},
                                       {.action = 12, .value = value_id(0), .for_fetch = true}};
  EXPECT_EQ(copy_waits(graph, kCarried), expected);
}

TEST(CopiesTest, HaveAddressesFromTheFetchOn) {
  const auto [graph, costs] = test::three_layers_step();
  const Placement placement = place(graph, test::with_link(costs, 10), kCarried, {.alignment_bytes = 1});
  EXPECT_EQ(placement.load_bytes, 220);
  EXPECT_FALSE(validate_addresses(graph, test::with_link(costs, 10), kCarried, placement));
  Placement torn = placement;
  std::erase_if(torn.addresses, [](const Address& address) { return address.action == 8; });
  EXPECT_TRUE(validate_addresses(graph, test::with_link(costs, 10), kCarried, torn));
}

TEST(CopiesTest, NeedALink) {
  const auto [graph, costs] = test::three_layers_step();
  EXPECT_EQ(input_error([&] { (void)simulate(graph, costs, kCarried); }),
            "the plan copies to the host and back, but the costs have no link");
  Costs broken = test::with_link(costs, 10);
  broken.link->up_bytes_per_s = 0;
  EXPECT_EQ(input_error([&] { (void)simulate(graph, broken, kCarried); }),
            "a link's rates must be above zero, got 10000000000 and 0 bytes per second");
}

TEST(CopiesTest, AreRefusedOutOfOrder) {
  const auto [graph, costs] = test::three_layers_step();
  const auto wrong = [&](std::vector<Action> actions) { return validate(graph, {std::move(actions)}).value().message; };
  EXPECT_EQ(wrong({s(0)}), "action 0: stores value 0, which is not live");
  EXPECT_EQ(wrong({c(0), s(0), s(0)}), "action 2: stores value 0, which has been stored before");
  EXPECT_EQ(wrong({c(0), f(0), b(0)}), "action 2: fetches value 0, which has not been stored");
  EXPECT_EQ(wrong({c(0), s(0), b(0)}), "action 2: fetches value 0, which is live");
  EXPECT_EQ(wrong({c(0), s(0), f(0), c(1)}), "action 3: computes op 1 'F2', whose input value 0 is not live");
  EXPECT_EQ(wrong({s(9)}), "action 0: stores unknown value 9");
  EXPECT_EQ(wrong({b(9)}), "action 0: fetches unknown value 9");
}

TEST(CopiesTest, ComeBackFromAFile) {
  const auto [graph, without] = test::three_layers_step();
  const Costs costs = test::with_link(without, 5);
  const PlanFile file{.graph = graph.name(),
                      .ops = graph.num_ops(),
                      .values = graph.num_values(),
                      .planner = "auto",
                      .budget_bytes = 220,
                      .simulation = simulate(graph, costs, kCarried),
                      .plan = kCarried,
                      .link = costs.link};
  const std::string text = format_plan(file);
  EXPECT_EQ(parse_plan(text, "p.json"), file);
  std::string older = text;
  older.replace(older.find("\"version\":4"), 11, "\"version\":2");
  EXPECT_EQ(input_error([&] { (void)parse_plan(older, "p.json"); }),
            "p.json: version 2 has no key 'link'; version 4 does");
}

}  // namespace
}  // namespace reprise
