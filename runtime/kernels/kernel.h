// How an op runs, and what is known about that: what an engine calls, the text that identifies its cost, and whether a
// second run gives the same result as the first. There is one kind: the boxed call of an ATen operator.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "runtime/kernels/communication.h"
#include "runtime/program/program.h"

namespace reprise {

class Kernel {
 public:
  // The call must outlive it.
  explicit Kernel(const Call& call) : call_(&call) {}

  // `stack` holds the arguments before and the results afterwards. A collective is waited for.
  void run(std::vector<c10::IValue>& stack) const;
  // Begins a collective; its results are there once it was waited for.
  [[nodiscard]] Communication begin(std::vector<c10::IValue>& stack) const;

  // A text that is equal for two calls that are alike in everything that time and workspace depend on: the operator,
  // the geometry of every tensor, which tensors share memory, and constants. The call must belong to the program.
  [[nodiscard]] std::string describe(const Program& program) const;

  // Whether a second run on `device` gives the same bits. A collective does not run again by itself: all processes
  // would have to run it.
  [[nodiscard]] bool repeats(at::Device device) const;

 private:
  const Call* call_;
};

// A user's own operator is not repeated unless it is declared to give the same bits every time. `name`: "mine::op",
// with an overload "mine::op.overload".
void declare_repeatable(const std::string& name);

}  // namespace reprise
