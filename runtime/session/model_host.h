// The host's memory that a model's steps on one device use.
#pragma once

#include <memory>

#include "runtime/device/host_link.h"
#include "runtime/engine/step_copies.h"

namespace reprise {

struct ModelHost {
  std::shared_ptr<HostBlock> block{};
  std::weak_ptr<StepCopies> open{};  // of the step that uses it, until its backward has run or it is dropped
};

}  // namespace reprise
