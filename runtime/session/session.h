// One captured step at work: knows what its calls cost, plans it for the memory there is, runs it.
//
// The plan is made when the step is called, not when it is captured: only then is it known what else lies on the
// device. Gradients that are there already (accumulation) make another situation and get another plan. What the caller
// allocates between forward and backward is measured at the first step and planned for from then on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/costs/cost_book.h"
#include "runtime/engine/executor.h"
#include "runtime/program/captured_step.h"
#include "runtime/session/caller.h"
#include "runtime/session/ledger.h"
#include "runtime/session/options.h"
#include "runtime/session/plan_book.h"
#include "runtime/session/replay_policy.h"

namespace reprise {

// What a session asks of the program around it.
struct Surroundings {
  // Tensors of the model and its optimizer that may have been there before anything was counted.
  std::function<std::vector<at::Tensor>()> known_tensors{};
  // Bytes that will be allocated later and have to be left free: state that the optimizer does not have yet.
  std::function<std::int64_t()> future_bytes{};
  // Per input of the step, whether it belongs to the model.
  ReplayPolicy::OwnedInputs owned_inputs{};
  // The step once more, where results lie otherwise than the capture took them to lie. Empty: it saw them.
  std::function<CapturedStep(const KnownLayouts&)> capture_again{};
  bool caller_is_user = true;  // else the loss is inside the step, and nothing happens between forward and backward
};

// Bytes on the device at every action of a plan, as the allocator gave them.
struct MeasuredMemory {
  std::vector<std::int64_t> during_bytes;
  std::vector<std::int64_t> after_bytes;
};

// A plan at work.
struct PlanAtWork {
  FoundPlan found;
  std::shared_ptr<const Executor> executor;
  std::optional<std::int64_t> room_bytes{};  // what it was made for
  std::int64_t outside_bytes = 0;            // what lay on the device beside the step
  std::int64_t backward_peak_bytes = 0;
  std::optional<std::int64_t> measured_peak_bytes{};
  int measured_steps = 0;
  std::optional<MeasuredMemory> measured{};  // of the latest step that was looked at action by action
  bool as_cuda_graphs = false;

  [[nodiscard]] std::int64_t peak_bytes() const { return found.simulation.peak_bytes + outside_bytes; }
};

// A step whose forward has run. Whoever holds it decides how long its memory lives.
struct RunningStep {
  std::shared_ptr<const Executor> executor;  // of a step that does not run as CUDA graphs
  StepState state{};
  std::weak_ptr<Replay> replay{};  // of one that does
  std::shared_ptr<const void> replay_token{};
  std::uint64_t number = 0;
};

class Session {
 public:
  // Nothing is measured or planned yet. Throws InputError where the program breaks a rule of graphs.
  Session(CapturedStep step, std::shared_ptr<const SessionOptions> options, Surroundings around);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  using Results = std::vector<std::optional<at::Tensor>>;

  // Throws InfeasibleBudget where no plan fits; nothing has run then. `interrupted` is called before every op.
  [[nodiscard]] Results forward(std::span<const at::Tensor> inputs, RunningStep& running,
                                const std::function<void()>& interrupted = {});
  // Undefined seeds: the caller has no such gradient. Throws BudgetExceeded where it kept more than was planned for.
  [[nodiscard]] Results backward(std::vector<at::Tensor> seeds, RunningStep& running,
                                 const std::function<void()>& interrupted = {});

  // The plan for a call while so much lies on the device beside the step, or (kInfeasible) the smallest budget that has
  // one, as a budget of the user's, and a message.
  [[nodiscard]] FoundPlan plan_ahead(std::int64_t outside_bytes);
  // What lies beside the step now, where inputs of so many bytes may not be there yet.
  [[nodiscard]] std::int64_t outside_bytes(std::int64_t absent_bytes) const;
  // Takes a plan made elsewhere for the steps from now on, and CUDA graphs for none. `source` is for errors.
  std::shared_ptr<PlanAtWork> use(const Plan& plan, const std::string& planner, const std::string& source);
  void use(std::shared_ptr<PlanAtWork> plan);
  void drop_plans();
  // The same, and gives back what they keep between steps.
  void release();
  void release_replay();
  void forget_replay();  // and that there was one
  // Also after a plan was given, which turns CUDA graphs off; what is recorded stays.
  void allow_replays() { replays_are_off_ = false; }

  // Costs of the calls on the device, and of the caller; the first time they are measured.
  const Costs& costs();
  [[nodiscard]] const Graph& graph() const { return graph_; }
  [[nodiscard]] const CapturedStep& step() const { return step_; }
  [[nodiscard]] const Program& program() const { return *step_.program; }
  [[nodiscard]] const SessionOptions& options() const { return *options_; }
  [[nodiscard]] std::shared_ptr<const PlanAtWork> current() const { return current_; }
  [[nodiscard]] const Caller& caller() const { return caller_; }
  [[nodiscard]] ReplayUse replay_use() const { return replays_ == nullptr ? ReplayUse{} : replays_->use(); }
  [[nodiscard]] std::size_t num_plans() const { return plans_.size(); }
  [[nodiscard]] std::int64_t total_bytes() { return ledger_.total_bytes({}, 0); }
  [[nodiscard]] double profile_seconds() const { return profile_seconds_; }
  [[nodiscard]] double planning_seconds() const { return planning_seconds_; }
  [[nodiscard]] std::uint64_t last_call() const { return last_call_; }  // orders the calls of all sessions

 private:
  // Of the latest forward, until its backward.
  struct Open {
    std::uint64_t number = 0;
    std::shared_ptr<PlanAtWork> plan;
    std::int64_t total_bytes = 0;
    std::optional<std::int64_t> room_bytes{};
    std::int64_t entry_bytes = 0;
    std::int64_t end_bytes = 0;
    std::optional<std::int64_t> forward_peak_bytes{};  // nothing: not measured
    std::shared_ptr<Trace> trace{};
    std::int64_t caller_peak_bytes = 0;
    std::int64_t caller_end_bytes = 0;
  };

  void price();
  void measure();
  [[nodiscard]] std::int64_t total_with(std::span<const at::Tensor> inputs);
  [[nodiscard]] std::int64_t reserved_bytes() const;
  [[nodiscard]] std::optional<std::int64_t> room_in(std::int64_t total) const;
  [[nodiscard]] ReplayPolicy::Situation situation(std::span<const at::Tensor> inputs);
  [[nodiscard]] std::shared_ptr<PlanAtWork> plan_for(std::span<const at::Tensor> inputs, std::int64_t& total);
  [[nodiscard]] std::shared_ptr<PlanAtWork> fitting_plan(std::optional<std::int64_t> room) const;
  [[nodiscard]] std::shared_ptr<PlanAtWork> plan_of(const Replay& replay, std::int64_t total,
                                                    std::span<const at::Tensor> inputs);
  [[nodiscard]] FoundPlan find(std::optional<std::int64_t> room);
  [[nodiscard]] std::shared_ptr<PlanAtWork> put_to_work(FoundPlan found, std::optional<std::int64_t> room,
                                                        std::int64_t outside);
  [[noreturn]] void refuse(const FoundPlan& found, std::int64_t outside) const;
  [[nodiscard]] std::int64_t smallest_budget(const FoundPlan& found, std::int64_t outside) const;
  [[nodiscard]] std::int64_t backward_peak(const Plan& plan) const;
  void meet_caller(Open& open, const std::vector<at::Tensor>& seeds);
  void look_again();
  void note_peak(const Open& open);
  [[nodiscard]] MeasuredMemory measured_memory(const Open& open) const;

  CapturedStep step_;
  std::shared_ptr<const SessionOptions> options_;
  Surroundings around_;
  Graph graph_;
  Costs costs_;
  bool priced_ = false;
  std::int64_t resident_bytes_;
  std::int64_t number_bytes_;  // asked for at every step, and the same at each
  std::vector<at::Tensor> constants_;
  Ledger ledger_;
  Caller caller_;
  std::unique_ptr<ReplayPolicy> replays_;  // nothing: the device has no CUDA graphs
  std::shared_ptr<PlanAtWork> replayed_;   // the books of the graphs at work
  std::weak_ptr<const Replay> replayed_of_;
  std::vector<std::shared_ptr<PlanAtWork>> plans_;
  std::shared_ptr<PlanAtWork> current_;
  bool plan_is_given_ = false;
  bool replays_are_off_ = false;
  std::optional<Open> open_;
  std::int64_t excess_bytes_ = 0;  // that steps took above their plans
  double profile_seconds_ = 0;
  double planning_seconds_ = 0;
  std::uint64_t last_call_ = 0;
};

}  // namespace reprise
