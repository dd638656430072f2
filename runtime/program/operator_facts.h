// What has to be known of single operators when a program is made of calls.
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
  std::string refusal;  // why no plan can hold it, and the way out; empty: it can
  bool random = false;
  bool is_view = false;                // changes or makes no memory, whatever the schema says
  bool compares = false;               // its result decides which way the model goes
  std::vector<std::size_t> written{};  // arguments whose memory the schema says is written
  // Arguments that a batch norm updates although its schema does not say so; without them it gives the same results.
  std::vector<std::size_t> statistics{};
};

// Of the tensors that a call gets their geometry counts alone.
[[nodiscard]] CallFacts facts_of(const Call& call);

// The constant that a call gets for an argument: a flag, or `otherwise` where it gets none; a number, or nothing.
[[nodiscard]] bool flag(const Call& call, std::string_view argument, bool otherwise = false);
[[nodiscard]] std::optional<double> number(const Call& call, std::string_view argument);

// Leaves out what the kernel does not read, and gives a number that it would make a tensor of at every run as one.
void simplify(Call& call);

[[nodiscard]] std::string short_name(const c10::OperatorHandle& op);  // "convolution_backward"

}  // namespace reprise
