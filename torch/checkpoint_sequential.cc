#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "reprise/error.h"
#include "reprise/torch/checkpoint.h"

namespace reprise {
namespace {

using Layers = std::vector<torch::nn::AnyModule>;

[[nodiscard]] at::Tensor run(Layers& layers, at::Tensor value) {
  for (torch::nn::AnyModule& layer : layers) value = layer.forward(std::move(value));
  return value;
}

[[nodiscard]] std::vector<at::Tensor> buffers_of(const Layers& layers) {
  std::vector<at::Tensor> all;
  for (const torch::nn::AnyModule& layer : layers) {
    const std::vector<at::Tensor> found = layer.ptr()->buffers();
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

void check_segments(std::int64_t segments, std::int64_t layers) {
  if (segments >= 1 && segments <= layers) return;
  throw InputError("checkpoint_sequential() got " + std::to_string(segments) + " segments for " +
                   std::to_string(layers) + " layers: there have to be between 1 and as many as layers");
}

}  // namespace

at::Tensor checkpoint_sequential(const torch::nn::Sequential& layers, std::int64_t segments, const at::Tensor& input,
                                 bool preserve_random_state) {
  check_segments(segments, static_cast<std::int64_t>(layers->size()));
  const std::ptrdiff_t length = static_cast<std::ptrdiff_t>(layers->size()) / segments;
  auto begin = layers->begin();
  at::Tensor value = input;
  for (std::int64_t segment = 1; segment < segments; ++segment) {
    const auto end = std::next(begin, length);
    Layers part(begin, end);
    const CheckpointOptions options{.buffers = buffers_of(part), .preserve_random_state = preserve_random_state};
    const auto function = [part = std::move(part)](const at::Tensor& x) mutable { return run(part, x); };
    value = checkpoint(TensorFunction(function), value, options);
    begin = end;
  }
  Layers rest(begin, layers->end());
  return run(rest, std::move(value));
}

}  // namespace reprise
