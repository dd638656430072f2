// What has to be known about single operators when a program is made from calls.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

struct CallFacts {
  std::string refusal;  // why a plan cannot contain it, and what to do; empty: it can
  bool random = false;
  bool is_view = false;                // neither changes nor makes memory, whatever the schema says
  bool compares = false;               // its result decides which code of the model runs
  std::vector<std::size_t> written{};  // arguments whose memory the schema says is written
  // Arguments that a batch norm updates although its schema does not say so; without them it gives the same results.
  std::vector<std::size_t> statistics{};
};

// Only the geometry of a call's tensors matters here, not their contents.
[[nodiscard]] CallFacts facts_of(const Call& call);

// The constant that a call gets for an argument: a flag, or `otherwise` if it gets none; a number, or nothing.
[[nodiscard]] bool flag(const Call& call, std::string_view argument, bool otherwise = false);
[[nodiscard]] std::optional<double> number(const Call& call, std::string_view argument);

// Whether a kernel of the operator on CUDA asserts what its operands hold, after which nothing runs in the process any
// more.
[[nodiscard]] bool ends_process_on_made_up_numbers(const c10::OperatorHandle& op);

// Removes arguments that the kernel does not read, and passes a number as a tensor if the kernel would make a tensor of
// it at every run.
void simplify(Call& call);

[[nodiscard]] std::string short_name(const c10::OperatorHandle& op);  // "convolution_backward"

}  // namespace reprise
