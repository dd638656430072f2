// What the calls of a step cost at sizes that were not profiled.
//
// A time follows from the time at a profiled size: it grows as the roofline does. Times decide how good a plan is. A
// workspace decides whether the plan stays inside its budget, so it is measured, by running the call once, unless it is
// certain: the cost book knows the call, or the kernel allocates in the same way at all sizes, and its workspace
// follows from those at other sizes (workspace_rule.h). Pointwise operators do; on the CPU, so do softmax and products
// in full precision. Convolutions, attention, norms and sums choose algorithms and buffers by size, and are measured at
// each. What is measured also shows how the results lie in memory; if that is not as the program says, the program is
// not the step at this size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "runtime/costs/cost_book.h"
#include "runtime/costs/workspace_rule.h"
#include "runtime/program/program.h"

namespace reprise {

class OtherSizes {
 public:
  // A program and its costs at the size where they were profiled.
  OtherSizes(std::shared_ptr<const Program> program, Costs costs);

  // What is known without running anything.
  struct Unsure {
    OpId op;
    std::string signature;
  };
  struct Estimate {
    Costs costs;                   // the workspace of a call that is not certain is 0
    std::vector<Unsure> unsure{};  // those calls
    std::string wrong{};           // why this is not the step at this size; empty: it may be
  };
  [[nodiscard]] Estimate estimate(const Program& program);

  struct Priced {
    Costs costs;
    std::string wrong{};       // why this is not the step at this size; empty: it is
    std::size_t measured = 0;  // kinds of calls
  };
  // The same, with the workspaces of those calls measured.
  [[nodiscard]] Priced price(const Program& program);

 private:
  std::shared_ptr<const Program> program_;
  Costs costs_;
  CostBook book_;
  std::vector<std::int64_t> roofline_;  // of the profiled program
  std::vector<WorkspaceRule> rules_;    // by op
};

}  // namespace reprise
