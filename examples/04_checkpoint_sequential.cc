// Train a chain of layers that keeps the inputs of its segments alone, from C++ alone.
#include <reprise/torch.h>
#include <torch/torch.h>

#include <cstdio>

namespace nn = torch::nn;

nn::Sequential twelve_layers() {
  torch::manual_seed(0);
  nn::Sequential layers;
  for (int i = 0; i < 4; ++i) {
    layers->push_back(nn::Linear(256, 256));
    layers->push_back(nn::BatchNorm1d(256));
    layers->push_back(nn::ReLU());
  }
  return layers;
}

// The loss after five steps; with one segment nothing is computed again.
double train(int segments) {
  const nn::Sequential layers = twelve_layers();
  torch::optim::SGD optimizer(layers->parameters(), 0.1);
  at::Tensor loss;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const at::Tensor input = torch::randn({64, 256});
    loss = reprise::checkpoint_sequential(layers, segments, input).square().mean();
    loss.backward();
    optimizer.step();
  }
  return loss.item<double>();
}

int main() {
  const double plain = train(1);
  const double checkpointed = train(4);
  std::printf("loss %.9f plain, %.9f in 4 segments\n", plain, checkpointed);
  return plain == checkpointed ? 0 : 1;
}
