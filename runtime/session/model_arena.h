// The arena of a model on one device, which the steps of all its shapes share.
#pragma once

#include <memory>

#include "runtime/device/arena.h"
#include "runtime/engine/arena_step.h"

namespace reprise {

struct ModelArena {
  explicit ModelArena(c10::Device device) : block(device) {}

  Arena block;
  std::weak_ptr<ArenaStep> open{};  // the step that is served from it, until its backward has run or it is dropped
  int overlaps = 0;                 // forwards that came before the backward of that step
};

}  // namespace reprise
