#include "reprise/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures/steps.h"
#include "report/step_story.h"
#include "reprise/error.h"
#include "reprise/graph_builder.h"
#include "reprise/io.h"
#include "reprise/simulate.h"
#include "reprise/validate.h"
#include "support/short_actions.h"

namespace reprise {
namespace {

using detail::StepStory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using test::b;
using test::c;
using test::f;
using test::s;

// x -> fc1 -> act -> loss, then loss_backward -> act -> fc1. The values are 0 the weight, 1 x, 2 a, 3 b, 4 loss, 5
// seed, 6 gb, 7 ga and 8 the gradient of the weight.
CostedGraph two_modules() {
  GraphBuilder g("two </script> modules");
  const ScopeId fc1 = g.scope("body.fc1");
  const ScopeId act = g.scope("body.act");
  const ValueId w = g.resident(10), x = g.arriving(100), a = g.value(100), b = g.value(100), loss = g.value(4);
  const ValueId seed = g.value(4), gb = g.value(100), ga = g.value(100), gw = g.value(10);
  const Phase back = Phase::kBackward;
  g.op({.name = "linear_1", .scope = fc1, .time_ns = 10, .inputs = {w, x}, .outputs = {a}});
  g.op({.name = "relu_22", .scope = act, .time_ns = 5, .inputs = {a}, .outputs = {b}});
  g.op({.name = "loss", .time_ns = 1, .inputs = {b}, .outputs = {loss}});
  g.op({.name = "caller", .phase = Phase::kCaller, .inputs = {loss}, .outputs = {seed}});
  g.op({.name = "loss_backward", .phase = back, .time_ns = 2, .inputs = {b, seed}, .outputs = {gb}});
  g.op({.name = "relu_backward", .scope = act, .phase = back, .time_ns = 6, .inputs = {a, gb}, .outputs = {ga}});
  g.op({.name = "linear_backward_3",
        .scope = fc1,
        .phase = back,
        .time_ns = 20,
        .workspace_bytes = 7,
        .inputs = {x, ga},
        .outputs = {gw}});
  g.hold(seed);
  g.output(loss);
  g.output(gw);
  return g.build();
}

// `a` is freed after its reader in forward, and computed again for its reader in backward.
Plan without_a() { return {{c(0), c(1), f(2), c(2), c(3), c(4), f(3), c(0), c(5), f(6), f(2), c(6), f(1), f(7)}}; }

TEST(StepStoryTest, RunsAreTheTimelineWithFreesFoldedIn) {
  const auto [graph, costs] = two_modules();
  const StepStory story = detail::tell(graph, costs, without_a());
  ASSERT_FALSE(validate(graph, without_a()));
  std::vector<std::int64_t> during;
  std::vector<std::int64_t> after;
  for (const detail::StepRun& run : story.runs) {
    during.push_back(run.during_bytes);
    after.push_back(run.after_bytes);
  }
  // 110 bytes at the start; a is made, then b; a is freed; then come loss, seed and gb; b is freed; a is made again; ga
  // is made; gb and a are freed.
  EXPECT_THAT(during, ElementsAre(210, 310, 214, 218, 318, 318, 418, 235));
  EXPECT_THAT(after, ElementsAre(210, 210, 214, 218, 218, 318, 218, 28));
  EXPECT_EQ(story.total, simulate(graph, costs, without_a()));
  EXPECT_EQ(story.peak_run, 6U);
  EXPECT_TRUE(story.runs[5].again);
  EXPECT_FALSE(story.reordered);
}

TEST(StepStoryTest, AChoiceCostsItsRunsAndItsPeakIsABound) {
  const auto [graph, costs] = two_modules();
  const StepStory story = detail::tell(graph, costs, without_a());
  ASSERT_EQ(story.recomputed.size(), 1U);
  EXPECT_EQ(story.recomputed[0].op, op_id(0));
  EXPECT_EQ(story.recomputed[0].runs, 1);
  EXPECT_EQ(story.recomputed[0].cost_ns, 10);
  EXPECT_EQ(story.recomputed[0].peak_if_kept_bytes, 418);  // 318 bytes and a, when gb is made
  const Plan kept{{c(0), c(1), c(2), c(3), c(4), f(3), c(5), f(6), f(2), c(6), f(1), f(7)}};
  ASSERT_FALSE(validate(graph, kept));
  EXPECT_LE(simulate(graph, costs, kept).peak_bytes, 418);
}

TEST(StepStoryTest, NamesAreTheUsers) {
  const auto [graph, costs] = two_modules();
  EXPECT_EQ(detail::module_name(graph, op_id(0)), "body.fc1");
  EXPECT_EQ(detail::kind_name(graph, op_id(0)), "linear");
  EXPECT_EQ(detail::kind_name(graph, op_id(1)), "relu");
  EXPECT_EQ(detail::kind_name(graph, op_id(6)), "linear_backward");
  EXPECT_EQ(detail::module_name(graph, detail::known_by(graph, value_id(0))), "body.fc1");  // the weight
}

TEST(ReportJsonTest, CountsWhatLiesBesideTheStep) {
  const auto [graph, costs] = two_modules();
  const Plan plan = without_a();
  const std::string json =
      report_json({.graph = graph, .costs = costs, .plan = plan, .budget_bytes = 2000, .outside_bytes = 1000});
  EXPECT_THAT(json, HasSubstr("\"budget_bytes\":2000,\n\"outside_bytes\":1000,\n\"resident_bytes\":1010,"));
  EXPECT_THAT(json, HasSubstr("\"planned\":{\n\"peak_bytes\":1418,\n\"time_ns\":54,\n\"recompute_ns\":10,\n"));
  EXPECT_THAT(json, HasSubstr("\"during_bytes\":[1210,1310,1214,1218,1318,1318,1418,1235]"));
  EXPECT_THAT(json, HasSubstr("\"not_held_bytes\":[100]"));
  EXPECT_THAT(json, HasSubstr("\"peak_if_kept_bytes\":[1418]"));
  EXPECT_THAT(json, HasSubstr("\"kept_bytes\":[0,100,4]"));
  EXPECT_THAT(json, HasSubstr("\"plain_kept_bytes\":[100,100,4]"));
}

TEST(ReportJsonTest, AMeasuredStepIsOfThisPlan) {
  const auto [graph, costs] = two_modules();
  const Plan plan = without_a();
  MeasuredStep measured{.during_bytes = std::vector<std::int64_t>(plan.actions.size(), 5),
                        .after_bytes = std::vector<std::int64_t>(plan.actions.size(), 4)};
  measured.during_bytes[8] = 418;
  measured.after_bytes[2] = 210;  // This is after the free that follows the second run.
  ReportInput input{.graph = graph, .costs = costs, .plan = plan, .measured = measured};
  EXPECT_THAT(report_json(input), HasSubstr("\"measured_peak_bytes\":418,"));
  EXPECT_THAT(report_json(input), HasSubstr("\"measured_after_bytes\":[4,210,4,4,4,4,4,4]"));
  input.measured->after_bytes.pop_back();
  EXPECT_THROW(static_cast<void>(report_json(input)), InputError);
  EXPECT_THROW(static_cast<void>(trace_json(input)), InputError);
}

// By run, not by action: frees are not runs. The caller's part, and what is there from the start, lie outside.
TEST(ReportJsonTest, ThereIsARectangleForEveryAddress) {
  const auto [graph, costs] = two_modules();
  const Plan plan = without_a();
  ReportInput input{.graph = graph, .costs = costs, .plan = plan};
  EXPECT_THAT(report_json(input), Not(HasSubstr("\"arena\"")));
  input.placement = place(graph, costs, plan, {.alignment_bytes = 4});
  const std::string json = report_json(input);
  std::string offsets, ops;
  std::size_t runs = 0;
  for (const Address& address : input.placement->addresses) {
    offsets += (offsets.empty() ? "" : ",") + std::to_string(address.offset);
    ops += (ops.empty() ? "" : ",") + std::to_string(index(plan.actions[address.action].op()));
  }
  for (const Action action : plan.actions) runs += action.computes() ? 1 : 0;
  EXPECT_THAT(json, HasSubstr("\"arena\":{\n\"arena_bytes\":" + std::to_string(input.placement->arena_bytes) + ","));
  EXPECT_THAT(json, HasSubstr("\"offset\":[" + offsets + "],"));
  EXPECT_THAT(json, HasSubstr("\"op\":[" + ops + "],\n\"kind\""));
  EXPECT_THAT(json, HasSubstr("," + std::to_string(runs) + "],\n\"offset\""));  // the gradient stays to the end
}

TEST(ReportJsonTest, AForwardOnlyGraphHasToBeCompleted) {
  GraphBuilder builder("forward");
  const ValueId x = builder.value(8);
  builder.op({.name = "op", .outputs = {x}});
  const auto [forward, costs] = builder.build();
  const Plan plan{{c(0)}};
  EXPECT_THROW(static_cast<void>(report_json({.graph = forward, .costs = costs, .plan = plan})), InputError);
}

TEST(ReportJsonTest, TheBoundIsThatOfThePlanItself) {
  const auto [graph, costs] = two_modules();
  const Plan plan = without_a();
  ReportInput input{.graph = graph, .costs = costs, .plan = plan};
  EXPECT_THAT(report_json(input), HasSubstr("\"lower_bound_ns\":null,"));
  input.curve.push_back({.simulation = {.peak_bytes = 500, .time_ns = 60}, .lower_bound_ns = 1});
  const std::int64_t bound = lower_bound_ns(graph, costs, plan);
  EXPECT_THAT(report_json(input), HasSubstr("\"lower_bound_ns\":" + std::to_string(bound) + ","));
  EXPECT_GT(bound, 1);
  EXPECT_LE(bound, simulate(graph, costs, plan).time_ns);
}

TEST(ReportPageTest, NoNameEndsTheScriptItStandsIn) {
  const auto [graph, costs] = two_modules();
  const Plan plan = without_a();
  const std::string json = report_json({.graph = graph, .costs = costs, .plan = plan});
  const std::string page = report_page(json);
  EXPECT_THAT(page, HasSubstr("two \\u003c/script> modules"));
  EXPECT_THAT(page, Not(HasSubstr("two </script>")));
  EXPECT_THAT(page, Not(HasSubstr("@REPORT_JSON@")));
  EXPECT_THAT(page, Not(HasSubstr("@PAGE_")));
  EXPECT_EQ(page, report_page(json));
}

TEST(TraceJsonTest, EveryRunHasItsTimeAndItsMemory) {
  const auto [graph, costs] = two_modules();
  const Plan plan = without_a();
  const std::string trace = trace_json({.graph = graph, .costs = costs, .plan = plan, .budget_bytes = 500});
  EXPECT_THAT(trace, HasSubstr(R"("tid":3,"name":"body.fc1 linear","cat":"recomputed","ts":0.018,"dur":0.010,)"));
  EXPECT_THAT(trace, HasSubstr(R"({"ph":"C","pid":1,"name":"memory","ts":0.028,"args":{"bytes":418}})"));
  EXPECT_THAT(trace, HasSubstr(R"({"ph":"C","pid":1,"name":"budget","ts":0.054,"args":{"bytes":500}})"));
}

// Three layers with the first value stored in the host's memory, on a link on which the device waits twice for 10 ns.
const Plan kStored{{c(0), s(0), c(1), f(0), c(2), c(3), c(4), f(2), b(0), c(5), f(1), f(3), c(6), f(0), f(4)}};

TEST(ReportJsonTest, TellsOfTheHostsMemoryAndOfWaits) {
  const auto [graph, costs] = test::three_layers_step();
  const Costs slow = test::with_link(costs, 5);
  const std::string json = report_json({.graph = graph, .costs = slow, .plan = kStored});
  EXPECT_THAT(json, HasSubstr("\"time_ns\":80,\n\"recompute_ns\":0,\n\"kept_bytes\":200,\n\"wait_ns\":20,\n"
                              "\"host_peak_bytes\":100}"));
  EXPECT_THAT(json, HasSubstr("\"begin_ns\":[0,10,30,40,40,50,70]"));
  const Placement placement = place(graph, slow, kStored, {.alignment_bytes = 1});
  const std::string arena = report_json({.graph = graph, .costs = slow, .plan = kStored, .placement = placement});
  EXPECT_THAT(arena, HasSubstr("\"load_bytes\":220"));
}

TEST(TraceJsonTest, CopiesHaveTracksOfTheirOwn) {
  const auto [graph, costs] = test::three_layers_step();
  const std::string trace =
      trace_json({.graph = graph, .costs = test::with_link(costs, 5), .plan = kStored, .budget_bytes = 500});
  EXPECT_THAT(trace, HasSubstr(R"("tid":4,"name":"thread_name","args":{"name":"to the host"})"));
  EXPECT_THAT(trace,
              HasSubstr(R"("tid":4,"name":"F1","cat":"store","ts":0.010,"dur":0.020,"args":{"value":0,"bytes":100})"));
  EXPECT_THAT(trace, HasSubstr(R"("tid":5,"name":"F1","cat":"fetch","ts":0.050,"dur":0.020,)"));
}

// Two gathered layers as captured: every collective is waited for at once.
TEST(TraceJsonTest, CommunicatorsHaveTracksOfTheirOwn) {
  const auto [graph, costs] = test::two_gathered_layers_step();
  using test::c_in_place;
  const Plan plan{{c(0),  c_in_place(1), f(4), c(2),  c(3),           c_in_place(4), f(8),  c(5),  c(6),
                   c(7),  f(10),         f(6), f(9),  c(8),           c_in_place(9), f(15), f(12), c(10),
                   f(11), f(2),          f(5), c(11), c_in_place(12), f(18),         f(13)}};
  const std::string trace = trace_json({.graph = graph, .costs = costs, .plan = plan});
  EXPECT_THAT(trace, HasSubstr(R"("tid":6,"name":"thread_name","args":{"name":"communicator 1"})"));
  EXPECT_THAT(trace, HasSubstr(R"("tid":6,"name":"gather1","cat":"collective","ts":0.020,"dur":0.010,)"));
  EXPECT_THAT(trace, HasSubstr(R"("tid":1,"name":"F1","cat":"forward","ts":0.030,"dur":0.010,)"));
  EXPECT_THAT(trace, Not(HasSubstr(R"("name":"gather1","cat":"forward")")));
  const std::string json = report_json({.graph = graph, .costs = costs, .plan = plan});
  EXPECT_THAT(json, HasSubstr("\"time_ns\":100,\n\"recompute_ns\":0,\n"));
  EXPECT_THAT(json, HasSubstr("\"exposed_ns\":40"));
  EXPECT_THAT(json, HasSubstr("\"begin_ns\":[0,10,10,20,30,30,40,40,60,70,70,90,100]"));
  EXPECT_THAT(json, HasSubstr("\"stream\":[1,0,0,1,0,0,0,0,1,0,0,1,0]"));
}

TEST(TraceJsonTest, RunsAndCountersIncludeWhatLiesBesideTheStep) {
  const auto [graph, costs] = two_modules();
  const Plan plan = without_a();
  const std::string trace = trace_json({.graph = graph, .costs = costs, .plan = plan, .outside_bytes = 1000});
  EXPECT_THAT(trace, HasSubstr("\"peak_bytes\":1418}"));
  EXPECT_THAT(trace, HasSubstr("\"bytes\":1418}"));
  EXPECT_THAT(trace, Not(HasSubstr("\"peak_bytes\":418}")));
}

}  // namespace
}  // namespace reprise
