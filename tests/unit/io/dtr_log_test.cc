#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reprise/reprise.h"
#include "support/costed.h"
#include "support/input_error.h"

namespace reprise {
namespace {

using testing::ElementsAre;

std::string memory(const std::string& name, int bytes) {
  return R"({"INSTRUCTION":"MEMORY","NAME":")" + name + R"(","MEMORY":")" + std::to_string(bytes) + "\"}\n";
}
std::string constant(const std::string& name, int bytes) {
  return R"({"INSTRUCTION":"CONSTANT","NAME":")" + name + "\"}\n" + memory(name, bytes);
}
std::string result(const std::string& name, int bytes, int alias = -1) {
  return memory(name, bytes) + R"({"INSTRUCTION":"ALIAS","NAME":")" + name + R"(","ALIAS":")" + std::to_string(alias) +
         "\"}\n";
}
std::string call(const std::string& name, const std::string& args, const std::string& results, int time) {
  return R"({"INSTRUCTION":"CALL","NAME":")" + name + R"(","ARGS":[)" + args + R"(],"RESULT":[)" + results +
         R"(],"TIME":")" + std::to_string(time) + "\"}\n";
}
std::string release(const std::string& name) { return R"({"INSTRUCTION":"RELEASE","NAME":")" + name + "\"}\n"; }
std::string annotate(const std::string& what) { return R"({"INSTRUCTION":"ANNOTATE","ANNOTATION":")" + what + "\"}\n"; }

// linear, a view of it, relu_ in place, and their backward.
std::string small_log() {
  return constant("w", 400) + constant("x", 40) + call("linear", R"("x","w")", R"("h")", 120) + result("h", 80) +
         call("view", R"("h")", R"("v")", 3) + result("v", 80, 0) + release("h") +
         R"({"INSTRUCTION":"MUTATE","NAME":"relu_","ARGS":["v"],"MUTATE":[0],"TIME":"30"})" + "\n" +
         annotate("BACKWARD") + call("ones_like", R"("v")", R"("g")", 5) + result("g", 80) +
         call("relu_backward", R"("g","v","g")", R"("dh")", 40) + result("dh", 80) + release("g") + release("v") +
         call("linear_backward", R"("dh","x")", R"("dw")", 150) + result("dw", 400) + release("dh");
}

TEST(DtrLogTest, CallsBecomeOps) {
  const auto [graph, costs] = parse_dtr_log(small_log(), "net.log");
  ASSERT_EQ(graph.num_ops(), 6U);  // The view is not one.
  EXPECT_EQ(graph.op_name(op_id(0)), "linear");
  EXPECT_EQ(graph.caller_op(), op_id(2));
  EXPECT_THAT(costs.time_ns, ElementsAre(120, 30, 0, 5, 40, 150));
  // w, x, h, h after relu_, the seed, g, dh, dw
  EXPECT_THAT(costs.value_bytes, ElementsAre(400, 40, 80, 80, 0, 80, 80, 400));
  EXPECT_EQ(graph.residence(value_id(0)), Residence::kResident);
  EXPECT_EQ(graph.overwrites(value_id(3)), value_id(2));
  EXPECT_THAT(graph.inputs(op_id(0)), ElementsAre(value_id(1), value_id(0)));
  EXPECT_THAT(graph.inputs(op_id(3)), ElementsAre(value_id(3), value_id(4))) << "a backward op without gradients";
  EXPECT_THAT(graph.inputs(op_id(4)), ElementsAre(value_id(5), value_id(3))) << "g is named twice";
  EXPECT_THAT(graph.step_outputs(), ElementsAre(value_id(7))) << "what was never released";
}

// w and x, h, its gradient from g, and then dw: 440 + 80 + 80 + 80, and 440 + 80 + 400.
TEST(DtrLogTest, AStepOfALogIsPlanned) {
  const CostedGraph step = parse_dtr_log(small_log(), "net.log");
  EXPECT_EQ(solve(step, {.planner = "none"}).simulation.peak_bytes, 440 + 80 + 400);
  EXPECT_TRUE(solve(step, {.planner = "online"}).found());
}

TEST(DtrLogTest, OnlyWhatComesAfterTheStartCounts) {
  const std::string before = constant("other", 7) + call("warm_up", R"("other")", R"("h")", 1) + result("h", 8);
  EXPECT_EQ(parse_dtr_log(before + annotate("START") + small_log(), "a"), parse_dtr_log(small_log(), "a"));
}

TEST(DtrLogTest, BackwardMayBeginWithAName) {
  std::string text = small_log();
  text.erase(text.find(annotate("BACKWARD")), annotate("BACKWARD").size());
  const auto [graph, costs] = parse_dtr_log(text, "net.log");
  EXPECT_EQ(graph.caller_op(), op_id(3));
  EXPECT_EQ(graph.phase(op_id(2)), Phase::kForward) << "ones_like";
}

TEST(DtrLogTest, NamesMoveFromTensorToTensor) {
  const std::string text = constant("x", 8) + call("a", R"("x")", R"("y")", 1) + result("y", 16) +
                           R"({"INSTRUCTION":"COPY","DST":"z","SRC":"x"})" + "\n" +
                           R"({"INSTRUCTION":"COPY_FROM","DST":"z","SRC":"y"})" + "\n" + release("y") +
                           R"({"INSTRUCTION":"MUTATE","NAME":"add_","ARGS":["x","z"],"MUTATE":[0],"TIME":2})" + "\n";
  const auto [graph, costs] = parse_dtr_log(text, "net.log");
  EXPECT_THAT(graph.inputs(op_id(1)), ElementsAre(value_id(0), value_id(1)));
  EXPECT_EQ(graph.overwrites(value_id(2)), kNoValue) << "a constant is not written over";
  EXPECT_THAT(graph.step_outputs(), ElementsAre(value_id(1), value_id(2)));
}

std::string log_error(const std::string& text) {
  return input_error([&] { static_cast<void>(parse_dtr_log(text, "net.log")); });
}

TEST(DtrLogTest, SaysWhereALogIsWrong) {
  const std::string x = constant("x", 8);
  EXPECT_EQ(log_error(x + "\n{]\n"), "net.log:4:2: " + log_error("{]").substr(13)) << "lines count on";
  EXPECT_THAT(log_error(R"({"INSTRUCTION":"PIN","NAME":"x"})"), testing::HasSubstr("net.log:1:16: INSTRUCTION: "));
  EXPECT_EQ(log_error(R"({"INSTRUCTION":"RELEASE"})"), "net.log:1: NAME is missing");
  EXPECT_EQ(log_error(memory("x", 3)),
            "net.log:1: MEMORY and ALIAS have to follow the CONSTANT or the CALL that they belong to");
  EXPECT_EQ(log_error(x + x), "net.log:4: 'x' is made twice");
  EXPECT_EQ(log_error(x + call("f", R"("q")", R"("y")", 1)),
            "net.log:3: unknown tensor 'q'; make it by CONSTANT, CALL or COPY first");
  EXPECT_EQ(log_error(x + call("f", R"("x")", R"("y")", 1) + memory("z", 1)), "net.log:4: expected MEMORY of 'y'");
  EXPECT_EQ(log_error(x + call("f", R"("x")", R"("y")", 1) + memory("y", 1)),
            "net.log:4: ALIAS of 'y' is missing at the end of the log");
  EXPECT_EQ(log_error(x + call("f", R"("x")", R"("y")", 1) + result("y", 1, 1)),
            "net.log:5: ALIAS names no argument of the call");
  EXPECT_EQ(log_error(x + call("f", R"("x")", "", 1)), "net.log:3: a call without results");
  EXPECT_EQ(log_error(x + call("f", R"("x")", R"("y")", -1)), "net.log:3: TIME is negative");
  EXPECT_EQ(log_error(constant("x", -8)), "net.log:2: MEMORY is negative");
  EXPECT_EQ(log_error(x + R"({"INSTRUCTION":"MUTATE","NAME":"f","ARGS":["x"],"MUTATE":[1],"TIME":1})"),
            "net.log:3: MUTATE names no argument of the call");
  EXPECT_THAT(log_error(R"({"INSTRUCTION":"CONSTANT","NAME":"x"})"
                        "\n"
                        R"({"INSTRUCTION":"MEMORY","NAME":"x","MEMORY":"much"})"),
              testing::EndsWith("MEMORY: expected a whole number, found 'much'"));
}

}  // namespace
}  // namespace reprise
