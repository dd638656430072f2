// What a step holds while it runs, and between its forward and its backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "runtime/engine/arena_step.h"
#include "runtime/engine/early_gradients.h"
#include "runtime/engine/parked_state.h"
#include "runtime/engine/step_copies.h"
#include "runtime/kernels/communication.h"

namespace reprise {

// What the allocator counted at every action of a plan, from the beginning of the step.
struct Trace {
  std::vector<std::int64_t> during_bytes;  // the highest while the action ran
  std::vector<std::int64_t> after_bytes;
};

// What lives between forward and backward.
struct StepState {
  StepState() = default;
  ~StepState() { clear(); }
  StepState(const StepState&) = delete;
  StepState& operator=(const StepState&) = delete;
  StepState(StepState&&) = default;
  StepState& operator=(StepState&& other) noexcept;

  std::vector<at::Tensor> slots;        // by value; undefined: not live
  std::vector<std::uint8_t> ran;        // by op
  std::vector<std::uint32_t> versions;  // versions of the caller's tensors that backward reads, in the executor's order
  std::shared_ptr<Trace> trace;         // filled if it is set
  std::shared_ptr<ArenaStep> arena;     // serves the step, or watches it, if it is set
  bool pending = false;                 // forward has run, backward has not
  std::map<ValueId, Communication> begun;  // by what is in flight
  const GradientTaker* taker = nullptr;    // of the backward that is running
  std::vector<std::uint8_t> given;         // by gradient: it has taken it
  std::shared_ptr<ParkedState> parked;     // the optimizer's state, if the plan may store it
  std::shared_ptr<StepCopies> copies;      // to the host and back, if the plan has any

  // Ends the step wherever it is. Nothing is freed under a copy or a collective, and the optimizer's state comes back;
  // if there is no room for it, whoever else holds `parked` has to try again.
  void clear() noexcept;
};

}  // namespace reprise
