// A captured step that does not wait for a search: it runs with a plan that is known already, and the search goes on
// beside the steps.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/program/program_queries.h"
#include "runtime/record/capture_step.h"
#include "runtime/session/session.h"
#include "runtime/training.h"

namespace reprise::test {

struct ImpatientStep {
  explicit ImpatientStep(Case of) : network(std::move(of)) {
    options->cuda_graphs = CudaGraphs::kOff;
    options->waiting_seconds = 1e-9;
    Surroundings around;
    around.known_tensors = [this] { return state.tensors; };
    around.caller_is_user = false;
    session = std::make_unique<Session>(CapturedStep{.program = step.program}, options, std::move(around));
  }

  // The budget halfway between the smallest and the plain peak. Afterwards, the plan with the smallest peak is known.
  std::int64_t half() {
    const std::int64_t outside = session->outside_bytes(0);
    const std::int64_t plain = session->plan_ahead(outside).simulation.peak_bytes + outside;
    options->budget_bytes = 1;
    const std::int64_t smallest = session->plan_ahead(outside).smallest_budget_bytes;
    session->drop_plans();
    return (plain + smallest) / 2;
  }

  void run() const {
    RunningStep running;
    const at::NoGradGuard no_grad;
    (void)session->forward(arguments_of(step, state.tensors, batch), running);
    (void)session->backward(loss_seeds(*step.program), running);
  }

  // It comes first, because only memory that is allocated after it is metered.
  std::shared_ptr<SessionOptions> options = std::make_shared<SessionOptions>();
  Case network;
  ModuleState state = state_of(*network.module);
  Batch batch = network.batch(1);
  StepProgram step = capture_step("net", state, network.loss, batch);
  std::unique_ptr<Session> session;
};

}  // namespace reprise::test
