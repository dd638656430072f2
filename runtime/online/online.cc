#include "reprise/torch/online.h"

#include "runtime/device/cuda_limit.h"
#include "runtime/online/mode.h"

namespace reprise {

bool online_is_available(c10::DeviceType device) {
  return device == c10::kCPU || (device == c10::kCUDA && has_cuda_limit());
}

struct Online::State {
  explicit State(OnlineOptions options) : mode(std::move(options)) {}
  online::Mode mode;
};

Online::Online(OnlineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Online::~Online() = default;
void Online::end() { state_->mode.end(); }
void Online::set_budget(std::int64_t budget_bytes) { state_->mode.set_budget(budget_bytes); }
OnlineSummary Online::summary() const { return state_->mode.summary(); }
std::optional<OnlineStep> Online::planned_step() const { return state_->mode.planned_step(); }

}  // namespace reprise
