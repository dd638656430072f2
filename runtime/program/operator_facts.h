// What has to be known of single operators when a program is made of calls.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

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

// Of a call in a program for `device`. Of the tensors it gets their geometry counts alone.
[[nodiscard]] CallFacts facts_of(const Call& call, at::Device device);

// Operators of the user's own are not repeated, unless it is said that they give the same bits every time. `name`:
// "mine::op", with an overload "mine::op.overload".
void declare_repeatable(const std::string& name);

// Leaves out what the kernel does not read, and gives a number that it would make a tensor of at every run as one.
void simplify(Call& call);

[[nodiscard]] std::string short_name(const c10::OperatorHandle& op);  // "convolution_backward"

}  // namespace reprise
