#include "runtime/session/model_arena.h"

#include <vector>

namespace reprise {
namespace {

struct ModelArenas {
  std::mutex mutex;
  std::vector<std::weak_ptr<ModelArena>> all;
};

ModelArenas& model_arenas() {
  static auto* arenas = new ModelArenas;  // NOLINT: models may die at the very end of the process
  return *arenas;
}

}  // namespace

std::shared_ptr<ModelArena> make_model_arena(c10::Device device) {
  auto arena = std::make_shared<ModelArena>(device);
  const std::lock_guard lock(model_arenas().mutex);
  std::erase_if(model_arenas().all, [](const auto& other) { return other.expired(); });
  model_arenas().all.push_back(arena);
  return arena;
}

void make_idle_arenas_give_way(const ModelArena& to) {
  std::vector<std::shared_ptr<ModelArena>> others;
  {
    const std::lock_guard lock(model_arenas().mutex);
    for (const auto& known : model_arenas().all) {
      auto arena = known.lock();
      if (arena != nullptr && arena.get() != &to && arena->device == to.device) others.push_back(std::move(arena));
    }
  }
  for (const auto& other : others) {
    const std::unique_lock turn(other->turn, std::try_to_lock);  // one that runs now is not idle
    if (turn.owns_lock() && other->open.expired()) other->block.give_back();
  }
}

}  // namespace reprise
