#include "runtime/session/replay_policy.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "reprise/io.h"
#include "reprise/torch/errors.h"
#include "runtime/device/meter.h"
#include "runtime/messages.h"
#include "runtime/program/program_queries.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

constexpr int kMaxRecordings = 8;     // that were of little use: graphs do not suit parameters that move all the time
constexpr std::int64_t kOfUse = 100;  // steps that pay for a recording
constexpr int kMaxTries = 6;          // to make the pool fit
constexpr std::size_t kPools = 2;     // that the shapes of one model have together, without a budget
constexpr double kSpare = 0.005;      // of the budget: a loss that the caller keeps must not cause a new recording

// All policies of the process.
struct Policies {
  std::mutex mutex;
  std::set<ReplayPolicy*> all;
  std::atomic<std::int64_t> steps = 0;  // that might have run as graphs

  static Policies& instance() {
    static auto* policies = new Policies;
    return *policies;
  }
};

// The rest of a libtorch exception's text is a stack trace.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::int64_t sum_of(const std::vector<std::optional<TensorUse>>& uses, const Costs& costs) {
  std::int64_t bytes = 0;
  for (const ValueId value : values_of(uses)) bytes += costs.value_bytes[index(value)];
  return bytes;
}

}  // namespace

ReplayPolicy::ReplayPolicy(std::shared_ptr<const Program> program, std::shared_ptr<const SessionOptions> options,
                           OwnedInputs owned_inputs)
    : program_(std::move(program)),
      options_(std::move(options)),
      owned_inputs_(std::move(owned_inputs)),
      graph_(make_graph(*program_, RandomCalls::kOnce)),
      resident_bytes_(resident_bytes(*program_)),
      pace_(program_->device) {
  Policies& policies = Policies::instance();
  const std::lock_guard lock(policies.mutex);
  policies.all.insert(this);
}

ReplayPolicy::~ReplayPolicy() {
  Policies& policies = Policies::instance();
  const std::lock_guard lock(policies.mutex);
  policies.all.erase(this);
}

std::shared_ptr<Replay> ReplayPolicy::ready(const Situation& now) {
  if (options_->cuda_graphs == CudaGraphs::kOff) return nullptr;
  use_.note(++Policies::instance().steps);
  if (!takes(now.inputs)) {  // the executor says why
    give_way();
    return nullptr;
  }
  if (!refusal_.empty() && refused_for_ == options_->budget_bytes) {
    if (is_asked_for()) fail();
    return nullptr;
  }
  refusal_.clear();
  if (replay_ != nullptr && replay_->pending()) return nullptr;  // its memory is in use until that step's backward
  if (replay_ != nullptr && !is_current(now)) release();
  if (replay_ == nullptr && may_record()) record(now);
  return replay_;
}

ReplayUse ReplayPolicy::use() const {
  ReplayUse use{.recordings = recordings_, .refusal = refusal_};
  if (replay_ == nullptr) return use;
  use.recorded = true;
  use.pending = replay_->pending();
  use.pool_bytes = replay_->pool_bytes();
  use.hidden_bytes = replay_->hidden_bytes();
  return use;
}

bool ReplayPolicy::takes(std::span<const at::Tensor> inputs) const {
  if (inputs.size() != program_->inputs.size()) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!program_->inputs[i]) continue;
    if (!inputs[i].defined()) return false;
    Geometry geometry = geometry_of(inputs[i]);
    geometry.offset = program_->inputs[i]->geometry.offset;
    if (geometry != program_->inputs[i]->geometry) return false;
  }
  return true;
}

bool ReplayPolicy::is_current(const Situation& now) const {
  return replay_->lies_at(now.inputs) && recorded_for_ == options_->budget_bytes && over_bytes(now) <= 0;
}

std::int64_t ReplayPolicy::peak_bytes(const Situation& now) const {
  const at::Device device = program_->device;
  return now.base_bytes + read_meter(device).allocated_bytes + hidden_bytes(device) + replay_->outputs_bytes() +
         now.caller.planned_seed_bytes() + now.caller.kept_bytes() +
         std::max(now.caller.workspace_bytes(), replay_->gradients_bytes());
}

std::int64_t ReplayPolicy::over_bytes(const Situation& now) const {
  if (!options_->budget_bytes) return -1;
  return peak_bytes(now) + now.reserved_bytes - *options_->budget_bytes;
}

bool ReplayPolicy::may_record() {
  if (steps_before_ < options_->steps_before_cuda_graphs) return false;
  if (recordings_ >= kMaxRecordings) {
    refuse("its parameters or the memory beside it changed " + std::to_string(recordings_) + " times");
    return false;
  }
  return is_asked_for() || (pace_.is_launch_bound(options_->launch_bound) && is_used_more_than_rivals());
}

// Graphs are refused until the budget changes.
void ReplayPolicy::refuse(const std::string& why, std::optional<std::int64_t> smallest_budget_bytes) {
  release();
  recordings_ = 0;
  pace_.stop();
  refusal_ = "'" + program_->name + "' cannot run as CUDA graphs: " + why +
             ". Turn CUDA graphs off, or let Reprise choose (auto)";
  refused_for_ = options_->budget_bytes;
  refused_smallest_ = smallest_budget_bytes;
  if (is_asked_for()) fail();
  log_line(Severity::kInfo, program_->name + " runs without CUDA graphs: " + why);
}

void ReplayPolicy::fail() const {
  if (!refused_smallest_) throw Unsupported(refusal_);
  throw InfeasibleBudget(refusal_, options_->budget_bytes.value_or(0), *refused_smallest_);
}

void ReplayPolicy::release() {
  if (replay_ != nullptr && replay_->steps() >= kOfUse) --recordings_;
  replay_.reset();
}

void ReplayPolicy::forget() {
  give_way();
  refusal_.clear();
}

// Frees the graphs for other steps or other options; this is not counted against this step.
void ReplayPolicy::give_way() {
  if (replay_ == nullptr) return;
  --recordings_;
  replay_.reset();
  steps_before_ = 0;
}

std::vector<ReplayPolicy*> ReplayPolicy::rivals() const {
  Policies& policies = Policies::instance();
  const std::lock_guard lock(policies.mutex);
  std::vector<ReplayPolicy*> found;
  for (ReplayPolicy* other : policies.all) {
    const bool shares = other != this && other->options_ == options_ && other->replay_ != nullptr;
    if (shares && !other->replay_->pending()) found.push_back(other);
  }
  if (options_->budget_bytes) return found;
  std::ranges::sort(found, {}, [&](const ReplayPolicy* other) { return other->use_.at(policies.steps); });
  found.resize(found.size() < kPools ? 0 : found.size() - kPools + 1);
  return found;
}

void ReplayPolicy::make_rivals_give_way() {
  for (ReplayPolicy* rival : rivals()) rival->give_way();
}

bool ReplayPolicy::is_used_more_than_rivals() const {
  const std::int64_t now = Policies::instance().steps;
  return std::ranges::all_of(rivals(), [&](const ReplayPolicy* rival) { return use_.is_more_than(rival->use_, now); });
}

// -- Recording.

// A graph reads the memory of its device; numbers that lie elsewhere stay what they were at the recording.
std::string ReplayPolicy::misplaced(const Situation& now) const {
  const at::Device device = numbered(program_->device);
  for (const std::size_t i : inputs_with(*program_, read_values(*program_))) {
    if (now.inputs[i].device() != device) {
      return "input " + std::to_string(i) + " of the step lies on " + now.inputs[i].device().str();
    }
  }
  for (const auto& [value, tensor] : program_->constants) {
    if (tensor.device() != device) return "a tensor that the step reads lies on " + tensor.device().str();
  }
  return "";
}

ReplayInputs ReplayPolicy::sort(std::span<const at::Tensor> inputs) const {
  ReplayInputs sorted;
  const std::vector<bool> owned = owned_inputs_(inputs);
  for (const std::size_t i : inputs_with(*program_, read_values(*program_))) {
    if (owned[i]) {
      sorted.fixed.push_back(i);
      continue;
    }
    const Geometry& geometry = program_->inputs[i]->geometry;
    const at::Tensor bytes =
        at::empty({extent_bytes(geometry)}, at::TensorOptions().dtype(at::kByte).device(program_->device));
    sorted.copied.push_back(i);
    sorted.memory.push_back(view_of(bytes, geometry));
  }
  return sorted;
}

// The peak to plan for, as the simulator counts it, which leaves room for the copies.
std::optional<std::int64_t> ReplayPolicy::goal(const Situation& now) const {
  if (!options_->budget_bytes) return std::nullopt;
  const std::int64_t total =
      now.base_bytes + read_meter(program_->device).allocated_bytes + hidden_bytes(program_->device);
  const std::int64_t room = *options_->budget_bytes - now.reserved_bytes - (total - resident_bytes_);
  const auto spare = static_cast<std::int64_t>(kSpare * static_cast<double>(*options_->budget_bytes));
  return room - sum_of(program_->forward_outputs, now.costs) - sum_of(program_->gradients, now.costs) - spare;
}

void ReplayPolicy::record(const Situation& now) {
  if (const std::string where = misplaced(now); !where.empty()) return refuse(where);
  make_rivals_give_way();
  const ReplayInputs inputs = sort(now.inputs);
  cleared_bytes_ = 0;
  std::optional<std::int64_t> aim = goal(now);  // the memory of inputs is allocated by now
  PlanBook book(graph_, now.costs, options_->planner);
  for (int i = 0; i < kMaxTries; ++i) {
    FoundPlan found = book.find(aim, options_->planning_seconds);
    if (!found.found()) {
      const std::int64_t smallest = *options_->budget_bytes - *aim + found.smallest_budget_bytes;
      return refuse("no plan fits inside " + format_bytes(*options_->budget_bytes) +
                        " beside the copies of inputs, outputs and gradients; a budget of about " +
                        format_bytes(smallest) + " would be enough",
                    smallest);
    }
    const std::int64_t peak = found.simulation.peak_bytes;
    if (!try_to_record(now, inputs, std::move(found))) return;
    const std::int64_t over = over_bytes(now) + cleared_bytes_;
    if (!aim || over <= 0) {
      ++recordings_;
      recorded_for_ = options_->budget_bytes;
      pace_.stop();
      log_line(Severity::kInfo, program_->name + ": recorded as CUDA graphs, " + format_bytes(replay_->hidden_bytes()) +
                                    " in their pool beside what is allocated");
      return;
    }
    release();
    aim = peak - over;
  }
  refuse("their pool did not fit the budget in " + std::to_string(kMaxTries) + " tries");
}

bool ReplayPolicy::try_to_record(const Situation& now, const ReplayInputs& inputs, FoundPlan found) {
  try {
    replay_ = std::make_shared<Replay>(program_, std::move(found), now.inputs, inputs, resident_bytes_);
    cleared_bytes_ = std::max(cleared_bytes_, replay_->cleared_bytes());
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;  // not the step's fault: the next one tries again
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& error) {
    refuse("an operator cannot be recorded (" + first_line(error.what()) + ")");
    return false;
  }
}

}  // namespace reprise
