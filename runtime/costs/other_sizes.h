// What the calls of a step cost at sizes that were not profiled.
//
// A time follows from the time at a profiled size: it grows as the roofline does. Times decide how good a plan is. A
// workspace decides whether the plan stays inside its budget, so it is measured, by running the call once, unless it is
// certain: the cost book knows the call, or the same call needed the same workspace at all other sizes, two at least,
// and this size is at most twice as large as those and at least half as large. Convolutions on CUDA choose their
// algorithm by size and are always measured. What is measured also shows how the results lie in memory; if that is not
// as the program says, the program is not the step at this size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "runtime/costs/cost_book.h"
#include "runtime/program/program.h"

namespace reprise {

class OtherSizes {
 public:
  // A program and its costs at the size where they were profiled.
  OtherSizes(std::shared_ptr<const Program> program, Costs costs);

  struct Priced {
    Costs costs;
    std::string wrong{};       // why this is not the step at this size; empty: it is
    std::size_t measured = 0;  // kinds of calls
  };
  [[nodiscard]] Priced price(const Program& program);

 private:
  // By op, over all sizes at which its memory is known.
  struct Known {
    std::int64_t sizes = 0;
    bool is_constant = true;
    std::int64_t workspace_bytes = 0;  // at the latest
    double least_bytes = 0;            // that it moves
    double most_bytes = 0;
  };
  void learn(std::size_t op, double moved, std::int64_t workspace_bytes);
  [[nodiscard]] bool is_certain(const Program& program, std::size_t op, double moved) const;

  std::shared_ptr<const Program> program_;
  Costs costs_;
  CostBook book_;
  std::vector<std::int64_t> roofline_;  // of the profiled program
  std::vector<Known> known_;
};

}  // namespace reprise
