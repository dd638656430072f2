// A captured step that waits for no plan: it runs with one that is known already, and searches beside the steps.
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

  // Half of what recomputation can save. The plan with the smallest peak becomes known.
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

  std::shared_ptr<SessionOptions> options = std::make_shared<SessionOptions>();  // counts what comes after it
  Case network;
  ModuleState state = state_of(*network.module);
  Batch batch = network.batch(1);
  StepProgram step = capture_step("net", state, network.loss, batch);
  std::unique_ptr<Session> session;
};

}  // namespace reprise::test
