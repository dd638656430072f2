// How an op runs, and all that is known of that: what an engine calls, what a cost is known by, and whether a second
// run is as good as the first. There is one kind, the boxed call of an operator of ATen's.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "runtime/program/program.h"

namespace reprise {

class Kernel {
 public:
  // The call must outlive it.
  explicit Kernel(const Call& call) : call_(&call) {}

  // `stack` holds the arguments, afterwards the results.
  void run(std::vector<c10::IValue>& stack) const;

  // Says whether two calls are alike in all that time and workspace depend on: operator, geometry of every tensor,
  // which tensors share memory, constants. Of a call of the program.
  [[nodiscard]] std::string describe(const Program& program) const;

  // Whether a second run on `device` gives the same bits.
  [[nodiscard]] bool repeats(at::Device device) const;

 private:
  const Call* call_;
};

// Operators of the user's own are not repeated, unless it is said that they give the same bits every time. `name`:
// "mine::op", with an overload "mine::op.overload".
void declare_repeatable(const std::string& name);

}  // namespace reprise
