// Trains a chain of layers inside a budget, in C++ without Python.
#include <reprise/torch.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>

namespace nn = torch::nn;

nn::Sequential twenty_four_layers() {
  torch::manual_seed(0);
  nn::Sequential layers;
  for (int i = 0; i < 8; ++i) {
    layers->push_back(nn::Linear(64, 64));
    layers->push_back(nn::BatchNorm1d(64));
    layers->push_back(nn::ReLU());
  }
  return layers;
}

// Trains five steps and returns the last loss.
double train(std::int64_t budget_bytes) {
  const nn::Sequential layers = twenty_four_layers();
  const reprise::ChainPlan plan = reprise::plan_sequential(layers, torch::zeros({1024, 64}), budget_bytes);
  torch::optim::SGD optimizer(layers->parameters(), 0.1);
  at::Tensor loss;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor input = torch::randn({1024, 64});
    loss = reprise::checkpoint_sequential(layers, plan, input).square().mean();
    loss.backward();
    optimizer.step();
  }
  std::printf("%zu parts, at most %lld bytes: loss %.9f\n", plan.parts.size(), static_cast<long long>(plan.peak_bytes),
              loss.item<double>());
  return loss.item<double>();
}

int main() {
  const double plain = train(1'000'000'000);  // So much memory that nothing is computed again.
  const double planned = train(5'000'000);
  return plain == planned ? 0 : 1;
}
