#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reprise/io.h"
#include "support/input_error.h"

namespace reprise {
namespace {

// The example of docs/formats.md.
constexpr std::string_view kPlanExample = R"({
"format":"reprise.plan","version":2,
"graph":"two layers",
"ops":5,"values":7,
"planner":"none",
"budget_bytes":1100,"peak_bytes":1040,"time_ns":3780,"recompute_ns":0,
"actions":["c0","c1","c2","c3","f2","c4","f1","f5"]
}
)";

std::string with_actions(const std::string& actions) {
  std::string text(kPlanExample);
  const std::size_t begin = text.find("[\"c0\"");
  return text.replace(begin, text.find(']') + 1 - begin, actions);
}

std::string plan_error(const std::string& text) {
  return input_error([&] { static_cast<void>(parse_plan(text, "p.json")); });
}

TEST(PlanJsonTest, ReadsTheDocumentedExample) {
  const PlanFile file = parse_plan(kPlanExample, "p.json");
  EXPECT_EQ(file.graph, "two layers");
  EXPECT_EQ(file.ops, 5U);
  EXPECT_EQ(file.values, 7U);
  EXPECT_EQ(file.planner, "none");
  EXPECT_EQ(file.budget_bytes, 1100);
  EXPECT_EQ(file.simulation, (Simulation{.peak_bytes = 1040, .time_ns = 3780, .recompute_ns = 0}));
  ASSERT_EQ(file.plan.actions.size(), 8U);
  EXPECT_EQ(file.plan.actions[3], Action::compute(op_id(3)));
  EXPECT_EQ(file.plan.actions[4], Action::free(value_id(2)));
}

TEST(PlanJsonTest, WritesTheDocumentedExampleByteForByte) {
  EXPECT_EQ(format_plan(parse_plan(kPlanExample, "p.json")), kPlanExample);
}

TEST(PlanJsonTest, EveryKindOfActionSurvivesTheRoundTrip) {
  const PlanFile file{
      .graph = "a \"b\"",
      .ops = 13,
      .values = 8,
      .planner = "lower-sets",
      .budget_bytes = 1,
      .simulation = {.peak_bytes = 2, .time_ns = 3, .recompute_ns = 4},
      .plan = {.actions = {Action::compute(op_id(12)), Action::compute(op_id(0), true), Action::free(value_id(7))}}};
  EXPECT_THAT(format_plan(file), testing::HasSubstr(R"("actions":["c12","c0!","f7"])"));
  EXPECT_EQ(parse_plan(format_plan(file), "p.json"), file);
  EXPECT_EQ(parse_plan(with_actions("[]"), "p.json").plan.actions.size(), 0U);
}

TEST(PlanJsonTest, RefusesEverySpellingOfAnActionButOne) {
  for (const char* action : {"", "c", "f", "!", "c!", "c-1", "c+1", "c01", "c1 ", " c1", "C1", "f1!", "c1!!", "c1.0",
                             "x1", "1", "c4294967296", "c99999999999999999999", "cc1"}) {
    EXPECT_EQ(plan_error(with_actions("[\"c0\",\"" + std::string(action) + "\"]")),
              "p.json:7:17: actions[1]: '" + std::string(action) +
                  "' is not an action; actions are 'c12', 'c12!', 'f7', 's7' and 'b7'");
  }
  EXPECT_EQ(plan_error(with_actions("[3]")), "p.json:7:12: actions[0]: expected a string, found an integer");
}

TEST(PlanJsonTest, RefusesIdsThatTheGraphDoesNotHave) {
  EXPECT_EQ(plan_error(with_actions(R"(["c4","c5"])")), "p.json: actions[1]: names op 5, but the graph has 5");
  EXPECT_EQ(plan_error(with_actions(R"(["f7"])")), "p.json: actions[0]: names value 7, but the graph has 7");
}

// The example with an arena; `arena` is what follows the actions.
std::string with_arena(const std::string& arena) {
  std::string text(kPlanExample);
  text.replace(text.find("\"version\":2"), 11, "\"version\":3");
  return text.insert(text.rfind("\n}"), ",\n" + arena);
}

TEST(PlanJsonTest, AddressesSurviveTheRoundTripAsVersionThree) {
  const std::string text = with_arena(R"("arena":{"arena_bytes":4096,"alignment_bytes":512,"load_bytes":3584,
"addresses":[[0,2,0],[0,null,1024],[4294967290,6,4611686018427387904]]})");
  const std::string near = with_arena(R"("arena":{"arena_bytes":4096,"alignment_bytes":512,"load_bytes":3584,
"addresses":[[0,2,0],[0,null,1024],[5,6,4611686018427387904]]})");
  EXPECT_EQ(plan_error(text), "p.json: addresses[2]: names action 4294967290, but the plan has 8");
  const PlanFile file = parse_plan(near, "p.json");
  EXPECT_EQ(file.placement,
            (Placement{.addresses = {{.action = 0, .value = value_id(2), .offset = 0},
                                     {.action = 0, .value = kNoValue, .offset = 1024},
                                     {.action = 5, .value = value_id(6), .offset = 4611686018427387904}},
                       .arena_bytes = 4096,
                       .alignment_bytes = 512,
                       .load_bytes = 3584}));
  EXPECT_EQ(format_plan(file), near);
}

TEST(PlanJsonTest, RefusesAddressesThatAreNone) {
  const auto error = [](const std::string& addresses) {
    return plan_error(
        with_arena(R"("arena":{"arena_bytes":1,"alignment_bytes":1,"load_bytes":1,"addresses":)" + addresses + "}"));
  };
  const std::string three_parts = "an address has three parts: the action, the value or null, and the offset";
  EXPECT_THAT(error("[[0,1]]"), testing::HasSubstr(three_parts));
  EXPECT_THAT(error("[[]]"), testing::HasSubstr(three_parts));
  EXPECT_THAT(error("[[0,1,2,3]]"), testing::HasSubstr(three_parts));
  EXPECT_THAT(error("[[0,1,-2]]"), testing::HasSubstr("arena.addresses[0][2]"));
  EXPECT_EQ(error("[[0,7,0]]"), "p.json: addresses[0]: names value 7, but the graph has 7");
  EXPECT_EQ(error("[[8,1,0]]"), "p.json: addresses[0]: names action 8, but the plan has 8");
}

TEST(PlanJsonTest, TheVersionSaysWhetherThereIsAnArena) {
  std::string two = with_arena(R"("arena":{"arena_bytes":1,"alignment_bytes":1,"load_bytes":1,"addresses":[]})");
  two.replace(two.find("\"version\":3"), 11, "\"version\":2");
  EXPECT_EQ(plan_error(two), "p.json: version 2 has no key 'arena'; version 3 does");
  std::string three(kPlanExample);
  three.replace(three.find("\"version\":2"), 11, "\"version\":3");
  EXPECT_EQ(plan_error(three), "p.json: version 3 has an arena, but there is no key 'arena'");
  EXPECT_THAT(plan_error(with_arena(R"("arena":{"arena_bytes":1})")),
              testing::HasSubstr("key 'alignment_bytes' is missing"));
}

TEST(PlanJsonTest, ClaimsOfSizeCostNothing) {
  std::string text(kPlanExample);
  text.replace(text.find("\"ops\":5"), 7, "\"ops\":4000000000000000000");
  EXPECT_EQ(parse_plan(text, "p.json").ops, 4000000000000000000U);
}

TEST(PlanJsonTest, RefusesWhatIsMissingOrOfAnotherFormat) {
  EXPECT_EQ(plan_error("{}"), "p.json:1:1: key 'format' is missing");
  EXPECT_EQ(plan_error(R"({"format":"reprise.graph"})"),
            "p.json:1:11: format: expected 'reprise.plan', found 'reprise.graph'");
  EXPECT_EQ(plan_error(R"({"format":"reprise.plan","version":1})"),
            "p.json:1:36: version: version 1 is unknown; this reader knows 2 to 5");
  for (const char* key :
       {"graph", "ops", "values", "planner", "budget_bytes", "peak_bytes", "time_ns", "recompute_ns"}) {
    std::string text(kPlanExample);
    const std::size_t begin = text.find("\"" + std::string(key) + "\":");
    text.erase(begin, text.find(',', begin) + 1 - begin);
    EXPECT_EQ(plan_error(text), "p.json:1:1: key '" + std::string(key) + "' is missing");
  }
}

TEST(PlanJsonTest, RefusesEveryPrefixOfAFile) {
  for (std::size_t length = 0; length + 2 < kPlanExample.size(); ++length) {
    EXPECT_THAT(plan_error(std::string(kPlanExample.substr(0, length))), testing::StartsWith("p.json:")) << length;
  }
}

}  // namespace
}  // namespace reprise
