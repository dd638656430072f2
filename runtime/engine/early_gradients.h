// Gives gradients away as soon as they are final, while the rest of backward still runs.
//
// Whoever sums gradients over several processes can begin before backward ends. A gradient is final after the last
// action that makes its value: from then on the plan has it until the end of the step, so that taking it away later
// changes nothing, and taking it away earlier only frees memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "reprise/plan.h"
#include "runtime/program/program.h"

namespace reprise {

struct GradientTaker {
  std::vector<std::uint8_t> wants;                      // by gradient of the program
  std::function<void(std::size_t, at::Tensor)> take{};  // is called on the thread on which the calls run
};

class EarlyGradients {
 public:
  EarlyGradients(const Program& program, std::span<const Action> actions);

  // Gives away those that are final after the action, and marks them. Their slots are emptied if nothing reads them.
  void give(std::size_t action, const Program& program, const GradientTaker& taker, std::vector<at::Tensor>& slots,
            std::vector<std::uint8_t>& given) const;

 private:
  struct Ready {
    std::size_t action;
    std::size_t gradient;
    bool is_read_later;
  };
  std::vector<Ready> ready_;  // by action
};

}  // namespace reprise
