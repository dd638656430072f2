// Trains a network plainly or by a captured step, and compares what both leave behind.
#pragma once

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/networks.h"
#include "runtime/own_cache.h"
#include "support/input_error.h"

namespace reprise::test {

constexpr int kSteps = 4;

// From now on kernels give the same bits each time, so that two runs on CUDA can be compared.
inline void repeat_bits() {
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
}

// What training leaves behind.
struct Trained {
  std::vector<at::Tensor> losses;
  std::vector<std::pair<std::string, at::Tensor>> tensors;  // parameters, gradients, buffers, generator
};

using RunStep = std::function<at::Tensor(const Batch&)>;
using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

inline std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters), torch::optim::SGDOptions(0.05).momentum(0.9));
}
inline std::unique_ptr<torch::optim::Optimizer> adam(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(0.01));
}

inline Trained train(const Case& network, const RunStep& run, const MakeOptimizer& make_optimizer,
                     int micro_batches = 1, int steps = kSteps) {
  Trained result;
  const auto optimizer = make_optimizer(network.module->parameters());
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    for (int i = 0; i < micro_batches; ++i) {
      result.losses.push_back(run(network.batch(100 + step * micro_batches + i)).detach().clone());
    }
    optimizer->step();
  }
  for (const auto& item : network.module->named_parameters()) {
    result.tensors.emplace_back(item.key(), item.value().detach());
    result.tensors.emplace_back(item.key() + ".grad", item.value().grad());
  }
  for (const auto& item : network.module->named_buffers()) result.tensors.emplace_back(item.key(), item.value());
  result.tensors.emplace_back("next random number", torch::rand({3}, test_device()));
  return result;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  return x.sizes() == y.sizes() && x.nbytes() == y.nbytes() && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

inline void expect_same(const Trained& plain, const Trained& planned) {
  ASSERT_EQ(plain.losses.size(), planned.losses.size());
  for (std::size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_TRUE(same_bits(plain.losses[i], planned.losses[i])) << "loss " << i;
  }
  for (std::size_t i = 0; i < plain.tensors.size(); ++i) {
    EXPECT_TRUE(same_bits(plain.tensors[i].second, planned.tensors[i].second)) << plain.tensors[i].first;
  }
}

inline RunStep plainly(const Case& network) {
  return [network](const Batch& batch) {
    at::Tensor loss = network.loss(batch);
    loss.backward();
    return loss;
  };
}

inline RunStep planned_run(TrainingStep& step) {
  return [&step](const Batch& batch) { return step.run(batch); };
}

// Turns autocast to bfloat16 on the CPU on while it exists, and clears the casts of weights at its end.
struct Autocast {
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

}  // namespace reprise::test
