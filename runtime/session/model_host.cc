#include "runtime/session/model_host.h"

#include <utility>

namespace reprise {

void ModelHost::park(std::shared_ptr<ParkedState> state) {
  const std::lock_guard lock(mutex_);
  parked_ = std::move(state);
}

void ModelHost::bring_back_state() {
  const std::lock_guard lock(mutex_);
  if (parked_ == nullptr) return;
  parked_->bring_back();
  parked_.reset();
}

std::int64_t ModelHost::away_bytes() const {
  const std::lock_guard lock(mutex_);
  return parked_ == nullptr ? 0 : parked_->away_bytes();
}

}  // namespace reprise
