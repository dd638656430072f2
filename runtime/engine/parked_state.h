// The optimizer's state during a step whose plan may let it wait in the host's memory.
//
// A tensor of the state stays the same object; only the storage under it changes. While it is away, that is an empty
// one which throws when somebody asks for its numbers, so nobody can read them unseen. At the end of the step, or when
// bring_back() is called before, the tensor gets a storage with its numbers again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/engine/step_copies.h"
#include "runtime/program/program.h"

namespace reprise {

class ParkedState {
 public:
  // REQUIRES: has_state(program, state), and each storage belongs to its tensor alone.
  ParkedState(const Program& program, std::vector<at::Tensor> state, std::shared_ptr<StepCopies> copies);

  // Puts the state into the slots of a step that begins.
  void enter(std::vector<at::Tensor>& slots) const;
  // What a plan does with a value. Values that are not of the state, or back for good, are left alone. let_go() throws
  // if the numbers are no longer those that were stored.
  void note_stored(ValueId value);
  void let_go(ValueId value);
  void note_fetched(ValueId value, const at::Tensor& fetched);
  // Whether a value is back for good, whatever the plan goes on to do with it.
  [[nodiscard]] bool is_back(ValueId value) const;
  // All that was fetched has arrived: the tensors get it.
  void end();
  // Now, wherever the step is. What the plan still wants to do with the state does not happen. Throws if the device has
  // no room for it; then what is away stays where it is, and a later call tries again.
  void bring_back();
  // What bring_back() would take on the device.
  [[nodiscard]] std::int64_t away_bytes() const;
  // What it has taken.
  [[nodiscard]] std::int64_t returned_bytes() const;

 private:
  struct Part {
    at::Tensor tensor;
    const void* stored_from = nullptr;  // nothing: it was not stored
    std::uint32_t stored_version = 0;
    bool is_away = false;
    at::Tensor fetched{};  // defined: it is on its way back
  };
  [[nodiscard]] static std::int64_t missing_bytes(const Part& part);
  static void give_back(Part& part);

  mutable std::mutex mutex_;  // somebody else may want the state while a step runs
  std::map<ValueId, Part> parts_;
  std::set<ValueId> back_;
  std::int64_t returned_bytes_ = 0;
  std::shared_ptr<StepCopies> copies_;
};

}  // namespace reprise
