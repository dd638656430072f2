// Runs one step of a chain of layers, plain and with checkpoints, and compares the gradients. It also checks that
// exceptions of both libraries can be caught.
#include <reprise/error.h>
#include <reprise/torch.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

std::vector<at::Tensor> gradients(torch::nn::Sequential& layers, const at::Tensor& output) {
  layers->zero_grad();
  output.sum().backward();
  std::vector<at::Tensor> found;
  for (const at::Tensor& parameter : layers->parameters()) found.push_back(parameter.grad().clone());
  return found;
}

bool errors_arrive(torch::nn::Sequential& layers, const at::Tensor& input) {
  try {
    std::printf("%s\n", reprise::checkpoint_sequential(layers, 99, input).toString().c_str());
    return false;
  } catch (const reprise::InputError& error) {
    std::printf("as expected: %s\n", error.what());
  }
  try {
    std::printf("%s\n", reprise::checkpoint_sequential(layers, 2, at::ones({4, 7})).toString().c_str());
    return false;
  } catch (const c10::Error& error) {
    std::printf("as expected: %s\n", error.what_without_backtrace());
  }
  return true;
}

}  // namespace

int main() {
  torch::nn::Sequential layers(torch::nn::Linear(8, 8), torch::nn::ReLU(), torch::nn::Linear(8, 8), torch::nn::ReLU());
  const at::Tensor input = at::ones({4, 8});
  const auto plain = gradients(layers, layers->forward(input));
  const auto checkpointed = gradients(layers, reprise::checkpoint_sequential(layers, 2, input));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (!at::equal(plain[i], checkpointed[i])) return 1;
  }
  return errors_arrive(layers, input) ? 0 : 1;
}
