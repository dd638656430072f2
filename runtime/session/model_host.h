// The host's memory that a model's steps on one device use.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/device/host_link.h"
#include "runtime/engine/parked_state.h"
#include "runtime/engine/step_copies.h"

namespace reprise {

struct ModelHost {
  std::shared_ptr<HostBlock> block{};
  std::weak_ptr<StepCopies> open{};  // of the step that uses it, until its backward has run or it is dropped

  // The optimizer's state in the step that is open, and of one that ended when there was no room for it.
  void park(std::shared_ptr<ParkedState> state);
  // Brings back what is away, whatever step goes on.
  void bring_back_state();
  // What this would take on the device.
  [[nodiscard]] std::int64_t away_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<ParkedState> parked_{};
};

}  // namespace reprise
