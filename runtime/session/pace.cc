#include "runtime/session/pace.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace reprise {
namespace {

constexpr std::size_t kShares = 3;  // the number of steps that count
constexpr std::size_t kWaiting = 8;

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

c10::Event event_on(c10::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(current_stream(device));
  return event;
}

}  // namespace

void Pace::stop() {
  stopped_ = true;
  begin_.reset();
  waiting_.clear();
}

void Pace::begin_step() {
  begin_.reset();
  issue_seconds_ = 0;
  if (stopped_ || device_.is_cpu() || !current_stream(device_).query()) return;
  begin_ = event_on(device_);
}

void Pace::add_issue(double seconds) { issue_seconds_ += seconds; }

void Pace::end_step() {
  if (!begin_) return;
  waiting_.push_back({std::move(*begin_), event_on(device_), issue_seconds_});
  begin_.reset();
  if (waiting_.size() > kWaiting) waiting_.pop_front();
}

bool Pace::is_launch_bound(double share) {
  stopped_ = false;
  while (!waiting_.empty() && waiting_.front().end.query()) {
    const Waiting& step = waiting_.front();
    shares_.push_back(1e3 * step.issue_seconds / std::max(step.begin.elapsedTime(step.end), 1e-3));
    if (shares_.size() > kShares) shares_.pop_front();
    waiting_.pop_front();
  }
  if (shares_.size() < 2) return false;
  std::vector<double> sorted(shares_.begin(), shares_.end());
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2] >= share;
}

}  // namespace reprise
