// One captured step in use: knows what its calls cost, plans it for the available memory, and runs it.
//
// The plan is made when the step is called, not when it is captured: only then is it known what else is on the device.
// If gradients exist already (accumulation), the situation is another one and gets another plan. What the caller
// allocates between forward and backward is measured at the first step and planned for from then on.
//
// A step does not wait for the whole search: it runs with a plan that was found soon, and later steps with the plan
// that is found meanwhile. Who asks for a plan outside of a step waits for it. Bits do not depend on the plan.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
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
#include "runtime/session/planning.h"
#include "runtime/session/replay_policy.h"
#include "runtime/session/size_family.h"
#include "runtime/session/step_form.h"
#include "runtime/session/together.h"

namespace reprise {

// What a session needs from the program around it.
struct Surroundings {
  // Tensors of the model and its optimizer that may have been allocated before anything was counted.
  std::function<std::vector<at::Tensor>()> known_tensors{};
  // Bytes to leave free because they will be allocated later: state that the optimizer does not have yet.
  std::function<std::int64_t()> future_bytes{};
  // The optimizer's state now, which nobody reads from the call of the model to the end of backward unless it asks for
  // it first (options.h: bring_back_state).
  std::function<std::vector<at::Tensor>()> optimizer_state{};
  // For each input of the step, whether it belongs to the model.
  ReplayPolicy::OwnedInputs owned_inputs{};
  // Captures the step again if the layouts of results are not those that the capture assumed. Empty if the capture saw
  // the results.
  std::function<CapturedStep(const KnownLayouts&)> capture_again{};
  // For a step that is a member of a family; otherwise nothing.
  std::shared_ptr<SizeFamily> family{};
  // For a step in which processes communicate; otherwise nothing.
  std::shared_ptr<const Together> together{};
  bool caller_is_user = true;  // if not, the loss is inside the step, and nothing happens between forward and backward
};

// Bytes on the device at every action of a plan, as the allocator counted them.
struct MeasuredMemory {
  std::vector<std::int64_t> during_bytes;
  std::vector<std::int64_t> after_bytes;
};

// The latest step of a plan in its arena.
struct ArenaShare {
  std::int64_t block_bytes = 0;
  std::int64_t step_peak_bytes = 0;  // with the whole block in the place of what lies in it
  std::int64_t backward_peak_bytes = 0;
};

// A plan in use.
struct PlanAtWork {
  FoundPlan found;
  std::shared_ptr<const Executor> executor;
  std::optional<std::int64_t> room_bytes{};  // what it was made for
  std::int64_t outside_bytes = 0;            // memory on the device beside the step
  std::int64_t backward_peak_bytes = 0;
  std::optional<std::int64_t> measured_peak_bytes{};
  // What the first of several processes expects of the plan: by this all of them choose.
  Simulation of_first{};
  int measured_steps = 0;
  std::optional<std::int64_t> measured_wait_ns{};  // for copies, of the latest step that was timed
  int timed_steps = 0;
  std::optional<MeasuredMemory> measured{};  // of the latest step that was measured action by action
  PlanMethod method{"none"};                 // by which it was found
  FormName form{};                           // of the step that it plans
  std::int64_t parked_bytes = 0;             // of the optimizer's state, that it stores in the host's memory
  bool as_cuda_graphs = false;
  std::shared_ptr<const ArenaPlan> addresses{};     // made when a step is to run in an arena
  std::optional<ArenaPlan::Beside> beside_arena{};  // by the costs as they are now
  std::optional<ArenaShare> arena{};                // nothing: the latest step ran without
  // The plan that steps use instead if this one does not fit an arena inside the budget, once it was searched for.
  std::optional<std::shared_ptr<PlanAtWork>> smaller{};

  [[nodiscard]] std::int64_t step_peak_bytes() const {
    return arena ? arena->step_peak_bytes : found.simulation.peak_bytes;
  }
  [[nodiscard]] std::int64_t peak_bytes() const { return step_peak_bytes() + outside_bytes; }
};

// A step whose forward has run. Its memory lives as long as this object.
struct RunningStep {
  std::shared_ptr<const Executor> executor;  // for a step that does not run as CUDA graphs
  StepState state{};
  std::weak_ptr<Replay> replay{};  // for one that does
  std::shared_ptr<const void> replay_token{};
  std::uint64_t number = 0;
  std::int64_t turn = 0;  // which step of all processes it is
};

// How steps use their arena.
struct ArenaUse {
  bool is_on = false;
  std::int64_t block_bytes = 0;  // of the model, kept between steps
  std::int64_t arena_bytes = 0;  // that the latest plan needs
  std::int64_t load_bytes = 0;   // the most that is live in it at once
  std::int64_t steps = 0;        // that were served
  std::int64_t steps_without = 0;
  std::string why_without{};  // of the latest of those
  ArenaCounts requests{};     // of all steps
};

class Session {
 public:
  // Does not measure or plan anything yet. Throws InputError if the program breaks a rule of graphs.
  Session(CapturedStep step, std::shared_ptr<const SessionOptions> options, Surroundings around);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // On CUDA the allocator's peak is measured by resetting it. The user may read it too, so it is left alone after this
  // many steps of a plan.
  static constexpr int kMeasuredSteps = 4;

  using Results = std::vector<std::optional<at::Tensor>>;

  // Throws InfeasibleBudget if no plan fits; then nothing has run. `interrupted` is called before every op.
  [[nodiscard]] Results forward(std::span<const at::Tensor> inputs, RunningStep& running,
                                const std::function<void()>& interrupted = {});
  // An undefined seed means that the caller does not have that gradient. Throws BudgetExceeded if the caller kept more
  // memory than was planned for. What `taker` takes is not returned; a step that runs as CUDA graphs returns
  // everything.
  [[nodiscard]] Results backward(std::vector<at::Tensor> seeds, RunningStep& running,
                                 const std::function<void()>& interrupted = {}, const GradientTaker* taker = nullptr);

  // Goes on with a step whose forward has run as with the other step, which is the same for other gradients of its
  // outputs. Returns whether that is possible, and inside the budget; if not, the step is as it was.
  [[nodiscard]] bool go_on_as(Session& other, RunningStep& running);

  // Measures the costs of the calls. Before that, throws InfeasibleBudget for a member of a family that no known plan
  // and no search fits into the budget of a call with these inputs, whatever is not certain of its costs.
  void measure_for(std::span<const at::Tensor> inputs);

  // The plan for a call while so many bytes are in use beside the step; or (kInfeasible) the smallest budget that has a
  // plan, as the user would give it, and a message.
  [[nodiscard]] FoundPlan plan_ahead(std::int64_t outside_bytes);
  // Bytes in use beside the step now, when inputs of so many bytes do not exist yet.
  [[nodiscard]] std::int64_t outside_bytes(std::int64_t absent_bytes) const;
  // Uses a plan made elsewhere for all steps from now on, without CUDA graphs. `source` names it in errors.
  std::shared_ptr<PlanAtWork> use(const Plan& plan, const std::string& planner, const std::string& source);
  void use(std::shared_ptr<PlanAtWork> plan);
  void drop_plans();
  // The same, and gives back what they keep between steps.
  void release();
  void release_replay();
  void release_arena();
  void forget_replay();  // also forgets that there was one
  // Allows CUDA graphs again, also after a plan was given, which turns them off; what is recorded stays.
  void allow_replays() { replays_are_off_ = false; }

  // A family of this step at other sizes, which knows what this session knows; the first call measures its costs.
  [[nodiscard]] std::shared_ptr<SizeFamily> make_family();

  // The form in which the step is now.
  [[nodiscard]] const FormName& form() const { return form_; }
  // The costs of the calls on the device and of the caller; the first call measures them.
  const Costs& costs();
  [[nodiscard]] const Graph& graph() const { return graph_; }
  // The step as it was captured, in whatever form it is now.
  [[nodiscard]] const CapturedStep& whole_step() const {
    if (parking_.bare != nullptr) return *parking_.bare;
    return form_.is_sliced() ? others_.at({})->step : step_;
  }
  [[nodiscard]] const Program& program() const { return *step_.program; }
  [[nodiscard]] const SessionOptions& options() const { return *options_; }
  // The plan of the latest step.
  [[nodiscard]] std::shared_ptr<const PlanAtWork> current() const { return current_; }
  // The plan of the next step in the same situation: waits until the search for it has come to its end.
  [[nodiscard]] std::shared_ptr<const PlanAtWork> settled();
  // The peak of the latest step that was measured.
  [[nodiscard]] std::optional<std::int64_t> measured_peak_bytes() const { return measured_peak_bytes_; }
  // What the latest step that was planned for had for itself, with its inputs and parameters; nothing: no budget.
  [[nodiscard]] std::optional<std::int64_t> room_bytes() const { return room_bytes_; }
  [[nodiscard]] const Caller& caller() const { return caller_; }
  [[nodiscard]] ArenaUse arena_use() const;
  [[nodiscard]] ReplayUse replay_use() const { return replays_ == nullptr ? ReplayUse{} : replays_->use(); }
  [[nodiscard]] std::size_t num_plans() const { return plans_.size(); }
  [[nodiscard]] std::int64_t total_bytes() const { return ledger_.expected_bytes(own_tensors_, 0); }
  [[nodiscard]] double profile_seconds() const { return profile_seconds_; }
  [[nodiscard]] double planning_seconds() const { return planning_.seconds(); }
  [[nodiscard]] std::uint64_t last_call() const { return last_call_; }  // orders the calls of all sessions

 private:
  // What is known of the latest forward until its backward.
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
    std::int64_t returned_bytes = 0;  // state of the optimizer that was brought back before backward
    bool is_as_planned = true;        // not: backward is that of another step
  };

  // What a step that is called begins with.
  struct Ready {
    std::shared_ptr<PlanAtWork> plan;
    std::int64_t total_bytes = 0;                // on the device, without what the arena has free
    std::shared_ptr<ArenaStep> arena = nullptr;  // nothing: there is none, and the step is not watched
  };
  [[nodiscard]] bool wants_arena() const;
  [[nodiscard]] Ready get_ready(const Replay* replay, std::span<const at::Tensor> inputs);
  [[nodiscard]] std::string seat(Ready& ready);
  [[nodiscard]] std::string why_not_seated();
  void address(PlanAtWork& plan) const;
  [[nodiscard]] std::shared_ptr<PlanAtWork> smaller_plan(PlanAtWork& plan, std::int64_t excess);
  void run_without_arena(Ready& ready, std::span<const at::Tensor> inputs, std::string why);

  // The host's memory.
  void link_up();
  void learn_from_copies();
  [[nodiscard]] std::optional<Link> link_as_seen(const CopyTimes& times, const Simulation& planned);
  [[nodiscard]] PlanMethod method_now() const;
  [[nodiscard]] std::vector<PlanMethod> methods() const;
  [[nodiscard]] bool fits_host(const PlanAtWork& plan);
  void check_copies(const Plan& plan, const std::string& source);
  [[nodiscard]] std::shared_ptr<StepCopies> begin_copies(const std::shared_ptr<PlanAtWork>& plan);

  // The optimizer's state.
  [[nodiscard]] std::vector<at::Tensor> parkable() const;
  void meet_optimizer();
  void set_state(std::span<const at::Tensor> state);
  void become_form_of(const PlanAtWork& plan);
  [[nodiscard]] const Costs& costs_without_state();
  void bring_back_state(std::span<const at::Tensor> inputs);
  [[nodiscard]] std::shared_ptr<ParkedState> begin_parking(const PlanAtWork& plan,
                                                           const std::shared_ptr<StepCopies>& copies);
  [[nodiscard]] std::int64_t parked_bytes(const Plan& plan) const;

  [[nodiscard]] std::unique_ptr<ReplayPolicy> policy_for(const CapturedStep& step) const;
  [[nodiscard]] std::shared_ptr<SizeFamily> family_now() const;
  void price();
  void measure();
  [[nodiscard]] std::int64_t total_with(std::span<const at::Tensor> inputs);
  [[nodiscard]] std::int64_t reserved_bytes() const;
  [[nodiscard]] std::optional<std::int64_t> room_in(std::int64_t total) const;
  [[nodiscard]] ReplayPolicy::Situation situation(std::span<const at::Tensor> inputs);
  using Find = FoundPlan (Planning::*)(const Planning::Step&, std::optional<std::int64_t>);
  [[nodiscard]] Planning::Step planned_step() const { return {program(), graph_, costs_, method_now()}; }
  [[nodiscard]] std::shared_ptr<PlanAtWork> plan_for(std::span<const at::Tensor> inputs, std::int64_t& total,
                                                     Find find);
  [[nodiscard]] std::shared_ptr<PlanAtWork> fitting_plan(std::optional<std::int64_t> room) const;
  [[nodiscard]] std::shared_ptr<PlanAtWork> plan_of(const Replay& replay, std::int64_t total,
                                                    std::span<const at::Tensor> inputs);
  [[nodiscard]] FoundPlan find_plan(Find find, std::optional<std::int64_t> room);

  // Before anything is known but a family.
  void refuse_if_hopeless(std::span<const at::Tensor> inputs);
  [[nodiscard]] FoundPlan find_at_least(std::int64_t room);

  // Several processes with one plan.
  [[nodiscard]] std::int64_t total_once_freed(std::span<const at::Tensor> inputs, std::int64_t total);
  [[nodiscard]] std::shared_ptr<PlanAtWork> plan_together(std::int64_t total);
  [[nodiscard]] std::shared_ptr<PlanAtWork> known_together(std::int64_t room,
                                                           std::span<const std::int64_t> spare) const;
  [[nodiscard]] std::shared_ptr<PlanAtWork> search_together(std::int64_t room, std::int64_t mine, std::int64_t outside);
  [[nodiscard]] FoundPlan found_by_first(std::optional<std::int64_t> room);
  [[noreturn]] void refuse_together(const FoundPlan& found, std::int64_t outside, bool is_tightest) const;
  [[noreturn]] void tell_difference() const;
  [[nodiscard]] std::int64_t plans_fingerprint() const;
  void begin_backward_together(std::span<const at::Tensor> seeds, const RunningStep& running) const;

  // The step whole or in slices.
  [[nodiscard]] FoundPlan find_in_any_form(Find find, std::optional<std::int64_t> room);
  [[nodiscard]] bool make_form(FormKey key);
  void become(FormKey key);
  void keep_to_options();
  [[nodiscard]] bool become_form_of(const Plan& plan);
  void take_found();
  void search_beside(const std::shared_ptr<PlanAtWork>& plan);
  void settle();
  [[nodiscard]] std::shared_ptr<PlanAtWork> put_to_work(FoundPlan found, std::optional<std::int64_t> room,
                                                        std::int64_t outside, PlanMethod method);
  [[noreturn]] void refuse(const FoundPlan& found, std::int64_t outside) const;
  [[nodiscard]] std::int64_t smallest_budget(const FoundPlan& found, std::int64_t outside) const;
  [[nodiscard]] std::size_t caller_action(const Plan& plan) const;
  [[nodiscard]] std::int64_t backward_peak(const Plan& plan) const;
  void meet_caller(Open& open, const std::vector<at::Tensor>& seeds);
  void look_again();
  // A trace resets the peak at every action and has the peaks of all actions.
  [[nodiscard]] static std::int64_t highest(std::int64_t peak, const std::shared_ptr<Trace>& trace);
  void note_peak(const Open& open);
  [[nodiscard]] MeasuredMemory measured_memory(const Open& open) const;

  // A plan that was made for less memory than there is now is kept if the additional memory is at most this share of
  // the budget.
  static constexpr double kSlack = 0.02;
  // Neither recomputes nor waits, so that no plan is faster.
  [[nodiscard]] static bool is_plain(const Simulation& simulation) {
    return simulation.recompute_ns == 0 && simulation.host_peak_bytes == 0;
  }

  CapturedStep step_;
  FormName form_{};                                      // in which the step is now
  std::map<FormKey, std::unique_ptr<StepForm>> others_;  // in which it is not; nothing: not possible
  UseSlices slices_made_ = UseSlices::kExact;            // what the other forms were made for
  std::shared_ptr<const SessionOptions> options_;
  Surroundings around_;
  Graph graph_;
  Costs costs_;
  bool priced_ = false;
  std::int64_t resident_bytes_;
  std::vector<at::Tensor> own_tensors_;  // of the program
  Ledger ledger_;
  std::shared_ptr<ModelArena> arena_;  // of the model
  std::shared_ptr<ModelHost> host_;    // of the model
  struct Timed {
    std::shared_ptr<CopyLog> log{};
    std::weak_ptr<PlanAtWork> plan{};
    bool has_begun = false;
  } timed_;  // the step whose copies are timed
  struct Parking {
    std::unique_ptr<const CapturedStep> bare{};  // the whole step without the state; nothing: it never had any
    Costs bare_costs{};
  } parking_;
  enum class LinkLesson : std::uint8_t { kNone, kFaster, kSlower };
  LinkLesson lesson_ = LinkLesson::kNone;  // what steps have taught about the link
  std::int64_t unfilled_bytes_ = 0;        // what blocks needed above the most that is stored in them at once
  Caller caller_;
  Planning planning_;
  std::unique_ptr<ReplayPolicy> replays_;  // nothing: no CUDA graphs on this device, or at this size
  std::shared_ptr<PlanAtWork> replayed_;   // the plan in use for the graphs
  std::weak_ptr<const Replay> replayed_of_;
  std::vector<std::shared_ptr<PlanAtWork>> plans_;
  std::shared_ptr<PlanAtWork> current_;
  std::weak_ptr<PlanAtWork> searched_for_;  // the provisional plan, while a search goes on beside the steps
  bool plan_is_given_ = false;
  std::uint64_t family_version_ = 0;  // whose plans the plans are
  std::optional<std::int64_t> room_bytes_{};
  bool wants_new_plans_ = false;             // with other processes
  std::shared_ptr<const Program> outlined_;  // whose outline is known by its fingerprint
  std::int64_t outline_ = 0;
  std::int64_t turn_ = 0;
  std::int64_t least_taken_bytes_ = INT64_MAX;  // at a call, of what a budget counts
  bool replays_are_off_ = false;
  std::shared_ptr<CallScripts> scripts_ = std::make_shared<CallScripts>();
  std::shared_ptr<ArenaCounts> requests_ = std::make_shared<ArenaCounts>();
  ArenaUse arena_use_{};
  std::optional<Open> open_;
  std::optional<std::int64_t> measured_peak_bytes_{};
  std::int64_t excess_bytes_ = 0;  // how much more than their plans steps took
  double profile_seconds_ = 0;
  std::uint64_t last_call_ = 0;
};

}  // namespace reprise
