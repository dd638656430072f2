// What has to be known of single operators when calls are recorded below autograd.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// Of a call about to be made: its arguments are the last of `stack`.
struct CallFacts {
  std::string refusal;  // why no plan can hold it, and the way out; empty: it can
  bool random = false;
  bool repeatable = true;              // a second run gives the same bits
  bool is_view = false;                // changes or makes no memory, whatever the schema says
  bool compares = false;               // its result decides which way the model goes
  std::vector<std::size_t> written{};  // arguments whose memory the schema says is written
  // Arguments that a batch norm updates although its schema does not say so; without them it gives the same results.
  std::vector<std::size_t> statistics{};
};

[[nodiscard]] CallFacts facts_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack, at::Device device);

// Whether a kernel of CUDA's adds with atomics, by torch.use_deterministic_algorithms; and whether one of any device
// does where it is told to accumulate. Of operators by their name alone.
[[nodiscard]] bool adds_in_any_order(std::string_view name);
[[nodiscard]] bool accumulates_in_any_order(std::string_view name);

[[nodiscard]] std::string short_name(const c10::OperatorHandle& op);  // "convolution_backward"

}  // namespace reprise
