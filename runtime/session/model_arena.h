// The arena of a model on one device, which the steps of all its shapes share.
#pragma once

#include <memory>
#include <mutex>

#include "runtime/device/arena.h"
#include "runtime/engine/arena_step.h"

namespace reprise {

struct ModelArena {
  explicit ModelArena(c10::Device on) : device(on), block(on) {}

  c10::Device device;
  Arena block;
  std::weak_ptr<ArenaStep> open{};  // the step that is served from it, until its backward has run or it is dropped
  int overlaps = 0;                 // forwards that came before the backward of that step
  std::recursive_mutex turn{};      // for whoever uses the arena; an operator may call another model
};

[[nodiscard]] std::shared_ptr<ModelArena> make_model_arena(c10::Device device);
// Gives back the blocks of other models on the device whose steps are over. They would count against a budget although
// nothing is in them.
void make_idle_arenas_give_way(const ModelArena& to);

}  // namespace reprise
