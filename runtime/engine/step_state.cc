#include "runtime/engine/step_state.h"

#include <exception>
#include <utility>

#include "runtime/messages.h"

namespace reprise {

StepState& StepState::operator=(StepState&& other) noexcept {
  if (this == &other) return *this;
  clear();
  slots = std::move(other.slots);
  ran = std::move(other.ran);
  versions = std::move(other.versions);
  trace = std::move(other.trace);
  arena = std::move(other.arena);
  pending = std::exchange(other.pending, false);
  begun = std::move(other.begun);
  taker = std::exchange(other.taker, nullptr);
  given = std::move(other.given);
  parked = std::move(other.parked);
  copies = std::move(other.copies);
  return *this;
}

void StepState::clear() noexcept {
  try {
    if (copies != nullptr) copies->finish_all();
    for (auto& [value, communication] : begun) abandon(std::move(communication));
  } catch (const std::exception&) {  // the device is lost, and with it everything that could go wrong
  }
  begun.clear();
  slots.clear();
  arena.reset();
  try {
    if (parked != nullptr) parked->bring_back();
  } catch (const std::exception&) {  // whoever asks for it next is told why
    log_line(Severity::kWarning,
             "the device has no room now for state of the optimizer that waits in the host's memory");
  }
  parked.reset();
  copies.reset();
  ran.clear();
  versions.clear();
  given.clear();
  trace.reset();
  pending = false;
  taker = nullptr;
}

}  // namespace reprise
