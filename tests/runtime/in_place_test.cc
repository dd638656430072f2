// Calls may write their results over operands that are not read again: which calls do so, and what a step saves by it.
#include "runtime/program/passes/in_place.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "reprise/solve.h"
#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/training.h"

namespace reprise::test {
namespace {

// The program as it would be without the pass, with nothing in place.
Program without_pass(const Program& program) {
  Program plain = program;
  for (ProgramOp& op : plain.ops) {
    if (!op.in_place_call) continue;
    op.in_place_call.reset();
    plain.values[index(op.outputs.front()->value)].overwrites = kNoValue;
  }
  return plain;
}

std::int64_t peak_bytes(const Program& program) {
  return solve(make_graph(program), bare_costs(program), {.planner = "none"}).simulation.peak_bytes;
}

std::string over(const Program& program, const ProgramOp& op) {
  const ValueId old = program.values[index(op.outputs.front()->value)].overwrites;
  for (const ProgramOp& other : program.ops) {
    if (old != kNoValue && !other.outputs.empty() && values_of(other.outputs).front() == old) return other.name;
  }
  return "";
}

// A network with several tensors of the batch's size, one after the other: a sum, a ReLU and a softmax.
struct RowsImpl : nn::Module {
  RowsImpl() {
    register_module("layer", layer);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor wide = torch::relu(layer(x) + 1);
    return head(torch::softmax(wide * 2, 1));
  }
  nn::Linear layer{6, 512};
  nn::Linear head{512, 5};
};
TORCH_MODULE(Rows);

Case rows_case() {
  return classifier<Rows>([] { return torch::randn({256, 6}); });
}

TEST(InPlace, ResultsMayLieOverOperands) {
  const Case network = rows_case();
  const StepProgram step = capture_step("rows", state_of(*network.module), network.loss, network.batch(1));
  const Program& program = *step.program;
  std::map<std::string, std::string> found;
  for (const ProgramOp& op : program.ops) {
    if (op.in_place_call) found.emplace(op.name, over(program, op));
  }
  EXPECT_EQ(found["add"], "addmm");
  EXPECT_EQ(found["relu"], "add");
  EXPECT_EQ(found["mul"], "relu");  // A plan does so only if the result of the ReLU is not needed again.
  EXPECT_EQ(found["_softmax"], "mul");
  EXPECT_EQ(found["threshold_backward"], "mul_1");
  EXPECT_FALSE(found.contains("addmm"));
}

TEST(InPlace, StepsTakeLessAndAreBitForBitTheSame) {
  const Case plain = rows_case();
  const Case network = rows_case();
  const Batch batch = network.batch(1);
  const StepProgram step = capture_step("rows", state_of(*network.module), network.loss, batch);
  const std::int64_t row_bytes = 256 * 512 * 4;
  EXPECT_LE(peak_bytes(*step.program), peak_bytes(without_pass(*step.program)) - row_bytes * 9 / 10);

  TrainingStep planned = capture(network.module, network.loss, batch);
  planned.plan({});
  expect_same(train(plain, plainly(plain), sgd), train(network, planned_run(planned), sgd));
  if (test_device().is_cpu()) {
    EXPECT_EQ(planned.measured_peak_bytes(), planned.summary().peak_bytes);
  }
}

}  // namespace
}  // namespace reprise::test
