// The optimizer's state during a step whose plan may let it wait in the host's memory.
//
// A tensor of the state stays the same object; only the storage under it changes. While it is away, that is an empty
// one which throws when somebody asks for its numbers, so nobody can read them unseen. At the end of the step, or when
// bring_back() is called before, the tensor gets a storage with its numbers again.
#pragma once

#include <ATen/core/Tensor.h>

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
  // What a plan does with a value. Values that are not of the state, or back for good, are left alone.
  void let_go(ValueId value);
  void note_fetched(ValueId value, const at::Tensor& fetched);
  // Whether a value is back for good, whatever the plan goes on to do with it.
  [[nodiscard]] bool is_back(ValueId value) const;
  // All that was fetched has arrived: the tensors get it.
  void end();
  // Now, wherever the step is. What the plan still wants to do with the state does not happen. Throws if the device has
  // no room for it; then what is away stays where it is, and a later call tries again. Returns whether anything was
  // away.
  bool bring_back();

 private:
  struct Part {
    at::Tensor tensor;
    bool is_away = false;
    at::Tensor fetched{};  // defined: it is on its way back
  };
  static void give_back(Part& part);

  mutable std::mutex mutex_;  // somebody else may want the state while a step runs
  std::map<ValueId, Part> parts_;
  std::set<ValueId> back_;
  std::shared_ptr<StepCopies> copies_;
};

}  // namespace reprise
