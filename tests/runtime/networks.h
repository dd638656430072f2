// Small networks of ordinary libtorch code, and plain training to compare with.
#pragma once

#include <reprise/torch.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace reprise::test {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Batch = std::vector<at::Tensor>;

// A network with its loss, and batches for it.
struct Case {
  std::shared_ptr<nn::Module> module;
  LossFunction loss;
  std::function<Batch(std::int64_t seed)> batch;
};

struct BlockImpl : nn::Module {
  explicit BlockImpl(std::int64_t width)
      : first(register_module("first", nn::Conv2d(nn::Conv2dOptions(width, width, 3).padding(1).bias(false)))),
        first_norm(register_module("first_norm", nn::BatchNorm2d(width))),
        second(register_module("second", nn::Conv2d(nn::Conv2dOptions(width, width, 3).padding(1).bias(false)))),
        second_norm(register_module("second_norm", nn::BatchNorm2d(width))) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = first_norm(first(x)).relu_();
    y = second_norm(second(y));
    y += x;
    return torch::relu_(y);
  }
  nn::Conv2d first;
  nn::BatchNorm2d first_norm;
  nn::Conv2d second;
  nn::BatchNorm2d second_norm;
};
TORCH_MODULE(Block);

// A network with convolutions, batch norm, ReLU and addition in place, pooling and dropout.
struct SmallResNetImpl : nn::Module {
  SmallResNetImpl() {
    register_module("stem", stem);
    register_module("blocks", blocks);
    register_module("head", head);
    for (int i = 0; i < 3; ++i) blocks->push_back(Block(8));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = torch::max_pool2d(blocks->forward(torch::relu(stem(x))), 2);
    y = torch::dropout(y.mean({2, 3}), 0.3, is_training());
    return head(y);
  }
  nn::Conv2d stem{nn::Conv2dOptions(3, 8, 3).padding(1)};
  nn::Sequential blocks;
  nn::Linear head{8, 5};
};
TORCH_MODULE(SmallResNet);

struct AttentionNetImpl : nn::Module {
  AttentionNetImpl() {
    register_module("embed", embed);
    register_module("layer", layer);
    register_module("attend", attend);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embed(tokens).transpose(0, 1);
    x = layer(x);
    x = x + std::get<0>(attend(x, x, x));
    return head(x.mean(0));
  }
  nn::Embedding embed{20, 16};
  nn::TransformerEncoderLayer layer{nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.1)};
  nn::MultiheadAttention attend{16, 2};
  nn::Linear head{16, 5};
};
TORCH_MODULE(AttentionNet);

// The device that REPRISE_TEST_DEVICE names, or else the CPU.
inline at::Device test_device() {
  const char* name = std::getenv("REPRISE_TEST_DEVICE");
  return at::Device(name != nullptr ? name : "cpu");
}

// On CUDA it has no dropout: cuDNN keeps the random numbers for that between steps, and a capture cannot.
struct RecurrentNetImpl : nn::Module {
  RecurrentNetImpl() {
    register_module("lstm", lstm);
    register_module("gru", gru);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = std::get<0>(lstm(x));
    return head(std::get<0>(gru(y)).select(0, -1));
  }
  nn::LSTM lstm{nn::LSTMOptions(6, 8).num_layers(2).dropout(test_device().is_cpu() ? 0.2 : 0)};
  nn::GRU gru{8, 8};
  nn::Linear head{8, 5};
};
TORCH_MODULE(RecurrentNet);

// A network that writes to slices, to a buffer by hand, and to tensors that it has just made.
struct InPlaceNetImpl : nn::Module {
  InPlaceNetImpl() : average(register_buffer("average", torch::zeros({8}))) {
    register_module("layer", layer);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = layer(x).tanh();
    {
      const torch::NoGradGuard no_grad;
      average.mul_(0.9).add_(y.detach().mean(0), 0.1);
    }
    at::Tensor z = torch::zeros_like(y);
    z.slice(1, 0, 4).copy_(y.slice(1, 4, 8));
    z.slice(1, 4, 8).add_(y.slice(1, 0, 4)).mul_(2);
    return head((z + average).sigmoid_());
  }
  nn::Linear layer{6, 8};
  nn::Linear head{8, 5};
  at::Tensor average;
};
TORCH_MODULE(InPlaceNet);

template <typename Net>
Case classifier(std::function<at::Tensor()> input) {
  torch::manual_seed(0);
  Net net;
  net->to(test_device());
  return {.module = net.ptr(),
          .loss = [net](const Batch& batch) mutable { return F::cross_entropy(net(batch[0]), batch[1]); },
          .batch =
              [input = std::move(input)](std::int64_t seed) {
                torch::manual_seed(seed);
                at::Tensor x = input();
                const std::int64_t count = x.size(x.dim() == 3 ? 1 : 0);
                return Batch{x.to(test_device()), torch::randint(0, 5, {count}).to(test_device())};
              }};
}

inline Case resnet_case() {
  return classifier<SmallResNet>([] { return torch::randn({8, 3, 16, 16}); });
}
inline Case attention_case() {
  return classifier<AttentionNet>([] { return torch::randint(0, 20, {16, 12}); });
}
inline Case recurrent_case() {
  return classifier<RecurrentNet>([] { return torch::randn({12, 16, 6}); });
}
inline Case in_place_case() {
  return classifier<InPlaceNet>([] { return torch::randn({test_device().is_cpu() ? 64 : 4096, 6}); });
}

}  // namespace reprise::test
