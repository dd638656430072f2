// How a session gives its steps addresses: whether a step runs in the model's arena, with which plan, and what it takes
// then. Beside the arena lie what was there before, what the caller holds, and what it takes; together with the block
// they stay inside the budget.
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "runtime/messages.h"
#include "runtime/session/session.h"

namespace reprise {
namespace {

constexpr int kSmallerPlans = 2;  // that are tried if a plan does not fit an arena
constexpr int kMostOverlaps = 4;  // forwards before a backward, until a model runs without an arena for good

}  // namespace

bool Session::wants_arena() const {
  const at::Device device = program().device;
  if (options_->arena != UseArena::kOn) return options_->arena == UseArena::kAuto && device.is_cpu();
  if (!has_arena(device)) {
    throw InputError("there are arenas on the CPU alone, and the model is on " + device.str() + ": turn it off");
  }
  return true;
}

// A step begins with the block as if it held only what is live in it. If the step does not run there, that becomes
// true.
Session::Ready Session::get_ready(const Replay* replay, std::span<const at::Tensor> inputs) {
  if (options_->budget_bytes) make_idle_arenas_give_way(*arena_);
  Ready ready{.total_bytes = total_with(inputs)};
  if (replay != nullptr) {
    ready.plan = plan_of(*replay, ready.total_bytes, inputs);
    return ready;
  }
  ready.total_bytes -= arena_->block.free_bytes();
  const std::string why = why_not_seated();
  ready.plan = plan_for(inputs, ready.total_bytes, &Planning::find_soon);
  ready.plan->arena.reset();
  if (around_.together != nullptr) return ready;
  const std::string failed = why.empty() ? seat(ready) : why;
  if (!failed.empty()) run_without_arena(ready, inputs, failed);
  return ready;
}

// The first step is only watched: what its calls ask for becomes known. A step whose backward has not run does not go
// on in an arena after another forward has begun, because both would need all of it.
std::string Session::why_not_seated() {
  if (!wants_arena()) return "it is turned off";
  if (const auto open = arena_->open.lock()) {
    open->close();
    ++arena_->overlaps;
    return "another forward came before the backward of the step that was in it";
  }
  if (arena_->overlaps >= kMostOverlaps) return "forwards come before the backwards of other steps too often";
  if (scripts_->empty()) return "the first step is watched";
  return "";
}

// Makes the addresses of a plan, again if calls have asked for other workspaces meanwhile.
void Session::address(PlanAtWork& plan) const {
  if (plan.addresses == nullptr || plan.addresses->scripts_version() != scripts_->version()) {
    plan.addresses = std::make_shared<const ArenaPlan>(program(), graph_, costs_, plan.found.plan, *scripts_,
                                                       arena_->block.alignment_bytes());
  }
  if (!plan.beside_arena) plan.beside_arena = plan.addresses->beside(graph_, costs_, plan.found.plan);
}

// Why there is no seat, or nothing if there is one.
std::string Session::seat(Ready& ready) {
  const auto room = room_in(ready.total_bytes - arena_->block.live_bytes());
  auto plan = ready.plan;
  for (int tries = 0;; ++tries) {
    address(*plan);
    const std::int64_t bytes = plan->addresses->arena_bytes();
    if (bytes == 0) return "the plan has nothing to put into it";
    const auto limit = room ? std::optional(*room - plan->beside_arena->peak_bytes) : std::nullopt;
    std::optional<Arena::Seat> found;
    try {
      found = arena_->block.seat(bytes, limit);
    } catch (const c10::OutOfMemoryError&) {
      return "the device does not have its " + format_bytes(bytes) + " in one piece";
    }
    if (found) {
      // Than was counted. What is live in an older block is counted there.
      const std::int64_t more = arena_->block.free_bytes();
      plan->arena = {.block_bytes = arena_->block.block_bytes(),
                     .step_peak_bytes = plan->beside_arena->peak_bytes + more,
                     .backward_peak_bytes = plan->beside_arena->backward_peak_bytes + more};
      plan->outside_bytes = ready.plan->outside_bytes;
      ready.plan = plan;
      ready.arena = std::make_shared<ArenaStep>(step_.program, scripts_, requests_, arena_->block.alignment_bytes(),
                                                std::move(*found), plan->addresses);
      arena_->open = ready.arena;
      ++arena_use_.steps;
      return "";
    }
    const std::int64_t excess = arena_->block.excess(bytes, *limit);
    if (tries < kSmallerPlans) plan = smaller_plan(*plan, excess);
    if (tries >= kSmallerPlans || plan == nullptr) {
      return "its " + format_bytes(bytes) + " are " + format_bytes(excess) + " more than the budget has room for";
    }
  }
}

// A plan whose peak is lower by what is too much. It is not worth a search unless the user asked for an arena.
std::shared_ptr<PlanAtWork> Session::smaller_plan(PlanAtWork& plan, std::int64_t excess) {
  if (plan_is_given_ || options_->arena != UseArena::kOn) return nullptr;
  if (plan.smaller) return *plan.smaller;
  plan.smaller.emplace(nullptr);
  const std::int64_t room = plan.found.simulation.peak_bytes - excess;
  FoundPlan found = planning_.find_soon(planned_step(), room);
  if (!found.found()) return nullptr;
  found.is_provisional = false;
  plan.smaller = put_to_work(std::move(found), room, plan.outside_bytes, plan.method);
  return *plan.smaller;
}

void Session::run_without_arena(Ready& ready, std::span<const at::Tensor> inputs, std::string why) {
  arena_->block.give_back();
  const std::int64_t total = total_with(inputs);
  if (total > ready.total_bytes) {  // memory that could not be given back
    ready.total_bytes = total;
    ready.plan = plan_for(inputs, ready.total_bytes, &Planning::find_soon);
    ready.plan->arena.reset();
  }
  if (!wants_arena()) return;
  if (scripts_->empty()) {
    ready.arena = std::make_shared<ArenaStep>(step_.program, scripts_, requests_, arena_->block.alignment_bytes());
  } else if (why != arena_use_.why_without) {
    log_line(Severity::kInfo, program().name + " runs without its arena: " + why);
  }
  ++arena_use_.steps_without;
  arena_use_.why_without = std::move(why);
}

void Session::release_arena() {
  const std::lock_guard turn(arena_->turn);
  if (const auto open = arena_->open.lock()) open->close();
  arena_->block.give_back();
}

ArenaUse Session::arena_use() const {
  ArenaUse use = arena_use_;
  use.is_on = wants_arena();
  use.block_bytes = arena_->block.block_bytes();
  if (current_ != nullptr && current_->addresses != nullptr) {
    use.arena_bytes = current_->addresses->arena_bytes();
    use.load_bytes = current_->addresses->load_bytes();
  }
  use.requests = *requests_;
  return use;
}

}  // namespace reprise
