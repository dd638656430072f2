// Tests how a collective becomes a start and a wait, and that files keep both.
#include "runtime/program/passes/split_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "reprise/error.h"
#include "runtime/files/program_io.h"
#include "runtime/program/program_builder.h"
#include "runtime/program/program_queries.h"

namespace reprise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Geometry numbers(std::int64_t count) { return {.sizes = {count}, .strides = {1}}; }

// loss = sum(gathered part) + sum of the same, reduced: one communicator gathers, and another one reduces.
class Exchanging {
 public:
  // If asked, the caller gets what was gathered, too.
  StepProgram step(bool returns_whole = false) {
    const TensorUse part{builder_.resident(16, at::kCPU), numbers(4)};
    builder_.input(part);
    const TensorUse whole = exchange("gather", "all_gather_into_tensor", part, 8, {{.constant = 2}}, "first");
    const TensorUse sum = exchange("reduce", "all_reduce", whole, 8, {{.constant = "sum"}}, "second");
    const TensorUse again = exchange("scatter", "reduce_scatter_tensor", sum, 4, {{.constant = "sum"}, {.constant = 2}},
                                     "first", /*repeats=*/false);
    const TensorUse loss{builder_.made(4, at::kCPU), {}};
    add("loss", "aten::sum", {tensor(again), {.constant = c10::IValue()}}, loss, true);
    const TensorUse seed{builder_.seed(4, at::kCPU), {}};
    returns_whole ? builder_.end_forward({loss, whole}, {seed, std::nullopt}) : builder_.end_forward({loss}, {seed});
    StepProgram step;
    step.program = std::make_shared<Program>(builder_.finish({std::nullopt}));
    step.state_names = {"part"};
    step.inputs = {-1};
    step.gradients = {-1};
    return step;
  }
  [[nodiscard]] const std::vector<OpId>& origins() const { return builder_.origins(); }

 private:
  static Argument tensor(const TensorUse& use) { return {.kind = Argument::Kind::kTensor, .tensors = {use}}; }

  void add(const std::string& name, const std::string& op, std::vector<Argument> arguments, const TensorUse& result,
           bool repeats) {
    Call call{find_operator(op).value(), std::move(arguments)};
    const CallFacts facts = facts_of(call);
    (void)builder_.call({name, "", std::move(call), facts, repeats, {result}});
  }

  TensorUse exchange(const std::string& name, const std::string& op, const TensorUse& operand, std::int64_t count,
                     std::vector<Argument> more, const std::string& group, bool repeats = true) {
    const TensorUse result{builder_.made(4 * count, at::kCPU), numbers(count)};
    std::vector<Argument> arguments{tensor(operand)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back({.constant = group});
    add(name, "_c10d_functional::" + op, std::move(arguments), result, repeats);
    return result;
  }

  ProgramBuilder builder_{"exchanging", at::kCPU};
};

std::vector<std::string> names_and_streams(const Program& program) {
  std::vector<std::string> names;
  for (const ProgramOp& op : program.ops) names.push_back(op.name + " " + std::to_string(op.stream));
  return names;
}

TEST(SplitCollectives, StartsOnAStreamOfItsOwnAndWaitsForWhatIsInFlight) {
  Exchanging exchanging;
  const auto step = exchanging.step();
  const Program& program = *step.program;
  EXPECT_THAT(names_and_streams(program),
              ElementsAre("gather 1", "gather_wait 0", "reduce 1", "reduce_wait 0", "scatter 1", "scatter_wait 0",
                          "loss 0", "caller 0", "hand_over 0"));
  EXPECT_THAT(exchanging.origins(),
              ElementsAre(op_id(0), op_id(0), op_id(1), op_id(1), op_id(2), op_id(2), op_id(3), op_id(4), op_id(5)));
  const Graph graph = make_graph(program);
  EXPECT_EQ(graph.partner(op_id(0)), op_id(1));
  EXPECT_FALSE(graph.once(op_id(1)));
  EXPECT_TRUE(graph.once(op_id(4)) && graph.once(op_id(5)));
  // gloo gathers and scatters through a copy, which is there until the wait, and all-reduces in the result.
  const auto scratch_bytes = [&](std::size_t op) {
    std::int64_t bytes = 0;
    for (const ValueId value : program.ops[op].also_makes) bytes += program.values[index(value)].bytes;
    return bytes;
  };
  EXPECT_EQ(scratch_bytes(0), 32);
  EXPECT_EQ(scratch_bytes(2), 0);
  EXPECT_EQ(scratch_bytes(4), 32);
  const Costs costs = bare_costs(program);
  EXPECT_THAT(costs.workspace_bytes, testing::Each(0));
}

TEST(SplitCollectives, GathersOnceWhatTheCallerGets) {
  const auto step = Exchanging().step(/*returns_whole=*/true);
  const Graph graph = make_graph(*step.program);
  EXPECT_TRUE(graph.once(op_id(0)) && graph.once(op_id(1)));
}

TEST(SplitCollectives, LeavesWholeWhatReadsBeforeASideEffect) {
  const auto step = Exchanging().step();
  Program program;
  program.device = at::kCPU;
  program.values = {{.bytes = 16}, {.bytes = 32}, {.bytes = 16, .overwrites = value_id(0)}};
  ProgramOp gather = step.program->ops.front();
  gather.stream = 0;
  gather.also_makes.clear();
  gather.outputs.front()->value = value_id(1);
  ProgramOp effect;
  effect.kind = ProgramOp::Kind::kEffect;
  effect.name = "statistics";
  effect.also_makes = {value_id(2)};
  program.ops = {gather, effect};
  ASSERT_THAT(reads(gather), ElementsAre(value_id(0)));
  (void)split_collectives(program);
  EXPECT_THAT(names_and_streams(program), ElementsAre("gather 0", "statistics 0"));
  program.ops.pop_back();
  (void)split_collectives(program);
  EXPECT_THAT(names_and_streams(program), ElementsAre("gather 1", "gather_wait 0"));
}

TEST(SplitCollectives, FilesKeepStartsAndWaits) {
  const std::string text = format_program(Exchanging().step());
  EXPECT_THAT(text, HasSubstr(R"("version":2)"));
  EXPECT_EQ(format_program(parse_program(text, "text")), text);
}

TEST(SplitCollectives, FilesWithoutOneOfTheTwoAreRefused) {
  const std::string text = format_program(Exchanging().step());
  const auto refusal = [&](const std::string& old, const std::string& by) -> std::string {
    std::string other = text;
    other.replace(other.find(old), old.size(), by);
    try {
      (void)parse_program(other, "p.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal(R"("version":2)", R"("version":1)"), HasSubstr("version 1 has no ops on communicators"));
  EXPECT_THAT(refusal(R"("name":"reduce","stream":1)", R"("name":"reduce")"), HasSubstr("'wait'"));
  EXPECT_THAT(refusal(R"("name":"loss")", R"("name":"loss","stream":1)"), HasSubstr("p.json"));
  EXPECT_THAT(refusal(R"("kind":"wait",)", ""), HasSubstr("p.json"));
}

}  // namespace
}  // namespace reprise
