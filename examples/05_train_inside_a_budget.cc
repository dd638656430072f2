// Trains a ResNet of ordinary libtorch code three times: plainly, captured, and inside half of the memory.
#include <reprise/torch.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <vector>

namespace nn = torch::nn;
namespace F = torch::nn::functional;

nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t size, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(from, to, size).stride(stride).padding(size / 2).bias(false));
}

struct BasicBlockImpl : nn::Module {
  BasicBlockImpl(std::int64_t from, std::int64_t to, std::int64_t stride)
      : conv1(register_module("conv1", convolution(from, to, 3, stride))),
        norm1(register_module("norm1", nn::BatchNorm2d(to))),
        conv2(register_module("conv2", convolution(to, to, 3, 1))),
        norm2(register_module("norm2", nn::BatchNorm2d(to))) {
    if (stride == 1 && from == to) return;
    shortcut = register_module("shortcut", nn::Sequential(convolution(from, to, 1, stride), nn::BatchNorm2d(to)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = norm1(conv1(x)).relu_();
    y = norm2(conv2(y));
    y += shortcut ? shortcut->forward(x) : x;
    return y.relu_();
  }
  nn::Conv2d conv1;
  nn::BatchNorm2d norm1;
  nn::Conv2d conv2;
  nn::BatchNorm2d norm2;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(BasicBlock);

// A ResNet with twenty layers, for images of 32 x 32.
struct ResNetImpl : nn::Module {
  ResNetImpl() {
    blocks->push_back(convolution(3, 16, 3, 1));
    blocks->push_back(nn::BatchNorm2d(16));
    blocks->push_back(nn::ReLU(nn::ReLUOptions(/*inplace=*/true)));
    std::int64_t from = 16;
    for (const std::int64_t width : {16, 32, 64}) {
      for (int i = 0; i < 3; ++i) {
        blocks->push_back(BasicBlock(from, width, from == width ? 1 : 2));
        from = width;
      }
    }
    register_module("blocks", blocks);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& images) { return head(blocks->forward(images).mean({2, 3})); }
  nn::Sequential blocks;
  nn::Linear head{64, 10};
};
TORCH_MODULE(ResNet);

using Batch = std::vector<at::Tensor>;

Batch random_batch(std::uint64_t seed) {
  torch::manual_seed(seed);
  return {torch::randn({16, 3, 32, 32}), torch::randint(10, {16})};
}

ResNet new_net() {
  torch::manual_seed(0);
  return {};
}

struct Training {
  std::vector<double> losses{};
  double fastest_ms = 0;  // the time of the fastest step
  reprise::StepSummary summary{};
  std::int64_t measured_peak_bytes = 0;
};

// Trains five steps. `run` returns the loss of a batch and fills the gradients.
Training train(const ResNet& net, const std::function<at::Tensor(const Batch&)>& run) {
  Training done;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    done.losses.push_back(run(random_batch(i)).item<double>());
    optimizer.step();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    done.fastest_ms = i == 0 ? taken.count() : std::min(done.fastest_ms, taken.count());
  }
  return done;
}

Training train_plainly() {
  ResNet net = new_net();
  return train(net, [&](const Batch& batch) {
    at::Tensor loss = F::cross_entropy(net(batch[0]), batch[1]);
    loss.backward();
    return loss;
  });
}

Training train_inside(std::optional<std::int64_t> budget_bytes) {
  ResNet net = new_net();
  const auto loss = [&](const Batch& batch) { return F::cross_entropy(net(batch[0]), batch[1]); };
  reprise::TrainingStep step = reprise::capture(net, loss, random_batch(0));
  step.plan({.budget_bytes = budget_bytes});
  const auto run = [&](const Batch& batch) { return step.run(batch); };  // as loss(batch), then backward()
  Training done = train(net, run);
  done.summary = step.summary();
  done.measured_peak_bytes = step.measured_peak_bytes();
  return done;
}

void print(const char* name, const Training& done) {
  const auto mib = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const double share = static_cast<double>(done.summary.recompute_ns) /
                       static_cast<double>(done.summary.time_ns - done.summary.recompute_ns);
  std::printf("%-20s%12.2f%15.2f%14.1f%15.1f%13.6f\n", name, mib(done.summary.peak_bytes),
              mib(done.measured_peak_bytes), 100 * share, done.fastest_ms, done.losses.back());
}

int main() {
  const Training plain = train_plainly();
  const Training captured = train_inside(std::nullopt);
  const std::int64_t budget_bytes = captured.summary.peak_bytes / 2;
  const Training planned = train_inside(budget_bytes);

  std::printf("%-20s%12s%15s%14s%15s%13s\n", "", "peak, MiB", "measured, MiB", "run again, %", "fastest, ms",
              "last loss");
  std::printf("%-20s%41s%15.1f%13.6f\n", "plain libtorch", "", plain.fastest_ms, plain.losses.back());
  print("captured, no budget", captured);
  print("half of that", planned);

  const bool same = captured.losses == plain.losses && planned.losses == plain.losses;
  const bool inside = planned.measured_peak_bytes <= budget_bytes;
  std::printf("losses %s, peak %s\n", same ? "the same bits" : "DIFFER",
              inside ? "inside the budget" : "ABOVE THE BUDGET");
  return same && inside ? 0 : 1;
}
