#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "reprise/error.h"
#include "reprise/torch/checkpoint.h"
#include "runtime/checkpoint/sequential_layers.h"

namespace reprise {
namespace {

[[nodiscard]] at::Tensor run_part(Layers part, at::Tensor value, bool as_checkpoint, bool preserve_random_state) {
  if (!as_checkpoint) return run_layers(part, std::move(value));
  const CheckpointOptions options{.buffers = buffers_of(part), .preserve_random_state = preserve_random_state};
  const auto function = [part = std::move(part)](const at::Tensor& x) mutable { return run_layers(part, x); };
  return checkpoint(TensorFunction(function), value, options);
}

[[nodiscard]] at::Tensor run_parts(const torch::nn::Sequential& layers, const std::vector<ChainPlan::Part>& parts,
                                   at::Tensor value, bool preserve_random_state) {
  auto begin = layers->begin();
  for (const ChainPlan::Part& part : parts) {
    const auto end = std::next(begin, static_cast<std::ptrdiff_t>(part.layers));
    value = run_part(Layers(begin, end), std::move(value), part.checkpoint, preserve_random_state);
    begin = end;
  }
  return value;
}

void check_segments(std::int64_t segments, std::int64_t layers) {
  if (segments >= 1 && segments <= layers) return;
  throw InputError("checkpoint_sequential() got " + std::to_string(segments) + " segments for " +
                   std::to_string(layers) + " layers: give at least 1 and at most as many segments as layers");
}

void check_plan(const ChainPlan& plan, std::int64_t layers) {
  std::int64_t planned = 0;
  bool empty = false;
  for (const ChainPlan::Part& part : plan.parts) {
    planned += part.layers;
    empty = empty || part.layers < 1;
  }
  if (planned == layers && !empty) return;
  throw InputError("checkpoint_sequential() got a plan for " + std::to_string(planned) + " layers, but there are " +
                   std::to_string(layers) + ": make one for these layers with plan_sequential()");
}

}  // namespace

at::Tensor checkpoint_sequential(const torch::nn::Sequential& layers, std::int64_t segments, const at::Tensor& input,
                                 bool preserve_random_state) {
  const auto count = static_cast<std::int64_t>(layers->size());
  check_segments(segments, count);
  const std::int64_t length = count / segments;
  std::vector<ChainPlan::Part> parts(static_cast<std::size_t>(segments), {.layers = length, .checkpoint = true});
  parts.back() = {.layers = count - length * (segments - 1), .checkpoint = false};
  return run_parts(layers, parts, input, preserve_random_state);
}

at::Tensor checkpoint_sequential(const torch::nn::Sequential& layers, const ChainPlan& plan, const at::Tensor& input) {
  check_plan(plan, static_cast<std::int64_t>(layers->size()));
  return run_parts(layers, plan.parts, input, /*preserve_random_state=*/true);
}

}  // namespace reprise
