// A step in one of several forms: whole, or with a chain of its calls in slices. All forms take the same tensors and
// give the same, so a session may go from one to another between two steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "runtime/engine/call_script.h"
#include "runtime/program/captured_step.h"
#include "runtime/session/caller.h"
#include "runtime/session/forms.h"
#include "runtime/session/replay_policy.h"

namespace reprise {

struct PlanAtWork;

struct FormName {
  FormKey key{};
  std::string chain{};  // what is sliced, for people

  [[nodiscard]] bool is_sliced() const { return key.is_sliced(); }
  [[nodiscard]] std::string words() const {
    return is_sliced() ? chain + " in " + std::to_string(key.slices) + " slices" : "whole";
  }
};

// What a session knows of a form in which the step is not now.
struct StepForm {
  CapturedStep step;
  FormName name{};
  std::int64_t inside_bytes = 0;  // of the chain
  Graph graph;
  Costs costs{};
  bool priced = false;
  std::vector<at::Tensor> own_tensors;
  Caller caller;
  std::unique_ptr<ReplayPolicy> replays;
  std::shared_ptr<CallScripts> scripts = std::make_shared<CallScripts>();
  std::vector<std::shared_ptr<PlanAtWork>> plans{};
};

}  // namespace reprise
