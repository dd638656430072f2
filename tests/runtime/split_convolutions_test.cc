// Tests which backward passes of convolutions are split into two calls, and that the two together give what one call
// gives.
#include "runtime/program/passes/split_convolutions.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/kernels/kernel.h"
#include "runtime/program/tensor_memory.h"
#include "runtime/record/recorder.h"

namespace reprise {
namespace {

struct Recorded {
  Program program;
  std::vector<at::Tensor> parameters;
};

// Records a large convolution, and a small one after it.
Recorded record(at::MemoryFormat format) {
  torch::manual_seed(0);
  const auto options = torch::TensorOptions().requires_grad(true);
  const at::Tensor x = torch::rand({2, 3, 24, 24}).contiguous(format).requires_grad_(true);
  const std::vector<at::Tensor> parameters = {x, torch::rand({4, 3, 3, 3}, options), torch::rand({4}, options),
                                              torch::rand({2, 4, 3, 3}, options)};
  Recorder recorder("net", at::kCPU);
  for (const at::Tensor& tensor : parameters) static_cast<void>(recorder.resident(tensor, "net.part"));
  {
    const Recording recording(recorder);
    const at::Tensor large = at::conv2d(parameters[0], parameters[1], parameters[2]);
    const at::Tensor loss = at::conv2d(at::max_pool2d(large, 4), parameters[3]).square().sum();
    recorder.end_forward(loss);
    loss.backward();
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& tensor : parameters) gradients.push_back(tensor.grad());
  return {recorder.finish(gradients), parameters};
}

std::vector<const ProgramOp*> convolutions(const Program& program) {
  std::vector<const ProgramOp*> found;
  for (const ProgramOp& op : program.ops) {
    if (op.name.starts_with("convolution_backward")) found.push_back(&op);
  }
  return found;
}

TEST(SplitConvolutions, SplitsTheLargeOneAndLeavesTheSmallOne) {
  Recorded recorded = record(at::MemoryFormat::Contiguous);
  ASSERT_EQ(convolutions(recorded.program).size(), 2);
  split_convolutions(recorded.program);
  const auto found = convolutions(recorded.program);
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found[0]->name, "convolution_backward");
  EXPECT_EQ(found[1]->name, "convolution_backward_1_weight");
  EXPECT_EQ(found[2]->name, "convolution_backward_1_input");
  const ValueId input = found[1]->call->arguments[1].tensors.front()->value;
  for (const ValueId value : reads(*found[2])) EXPECT_NE(value, input);  // The input can be freed before this call.
  EXPECT_FALSE(found[1]->outputs[0] || found[2]->outputs[1] || found[2]->outputs[2]);
  EXPECT_NO_THROW(static_cast<void>(make_graph(recorded.program)));
}

TEST(SplitConvolutions, BothGiveWhatOneDoes) {
  Recorded recorded = record(at::MemoryFormat::Contiguous);
  const Call whole = *convolutions(recorded.program)[1]->call;
  split_convolutions(recorded.program);
  const auto parts = convolutions(recorded.program);
  const at::Tensor gradient = torch::rand({2, 4, 22, 22});
  const auto run = [&](const Call& call) {
    const std::vector<at::Tensor> bases = {gradient, recorded.parameters[0].detach(), recorded.parameters[1].detach()};
    const ValueId gradient_value = call.arguments[0].tensors.front()->value;
    std::vector<c10::IValue> stack;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      const Argument& argument = call.arguments[i];
      if (argument.kind != Argument::Kind::kTensor) {
        stack.push_back(argument.constant);
        continue;
      }
      const TensorUse& use = *argument.tensors.front();
      stack.emplace_back(view_of(use.value == gradient_value ? gradient : bases[i], use.geometry));
    }
    Kernel(call).run(stack);
    return stack;
  };
  const auto expected = run(whole);
  const auto weight = run(*parts[1]->call);
  const auto input = run(*parts[2]->call);
  EXPECT_TRUE(at::equal(input[0].toTensor(), expected[0].toTensor()));
  EXPECT_TRUE(at::equal(weight[1].toTensor(), expected[1].toTensor()));
  EXPECT_TRUE(at::equal(weight[2].toTensor(), expected[2].toTensor()));
}

TEST(SplitConvolutions, LeavesOtherLayoutsAlone) {
  Recorded recorded = record(at::MemoryFormat::ChannelsLast);
  split_convolutions(recorded.program);
  EXPECT_EQ(convolutions(recorded.program).size(), 2);
}

}  // namespace
}  // namespace reprise
