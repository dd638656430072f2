#include "runtime/session/size_family.h"

#include <exception>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "reprise/torch/errors.h"
#include "runtime/messages.h"

namespace reprise {
namespace {

constexpr const char* kPlanner = "auto";

std::unique_ptr<BackgroundTask<Curve>> begin_curve(Graph graph, Costs costs, double seconds) {
  return std::make_unique<BackgroundTask<Curve>>(
      [graph = std::move(graph), costs = std::move(costs)](const std::function<bool()>& should_stop) {
        return curve(graph, costs, {.planner = kPlanner, .should_stop = should_stop});
      },
      seconds);
}

void check_same(const Program& program, const std::string& wrong) {
  if (!wrong.empty()) throw Unsupported(program.name + " is another step at this size: " + wrong);
}

}  // namespace

SizeFamily::SizeFamily(Profiled profiled, std::shared_ptr<const SessionOptions> options, Search search)
    : options_(std::move(options)),
      graph_(profiled.graph),
      sizes_(profiled.program, profiled.costs),
      caller_(std::move(profiled.caller)),
      plans_(profiled.graph, profiled.costs),
      curve_(search == Search::kNone ? nullptr
                                     : begin_curve(profiled.graph, profiled.costs, options_->planning_seconds)) {
  for (const Plan& plan : profiled.plans) add(plan);
}

Costs SizeFamily::price(const Program& program) {
  OtherSizes::Priced priced = sizes_.price(program);
  check_same(program, priced.wrong);
  log_line(Severity::kInfo, program.name + ": another size; " + std::to_string(priced.measured) +
                                " kinds of calls were measured for their memory");
  return std::move(priced.costs);
}

std::optional<Costs> SizeFamily::costs_of(const Program& program) {
  OtherSizes::Priced priced = sizes_.price(program);
  return priced.wrong.empty() ? std::optional(std::move(priced.costs)) : std::nullopt;
}

Costs SizeFamily::least_costs(const Program& program) {
  OtherSizes::Estimate known = sizes_.estimate(program);
  check_same(program, known.wrong);
  return std::move(known.costs);
}

Caller SizeFamily::caller_of(const Program& program) const { return caller_.at_size_of(program); }

std::uint64_t SizeFamily::version() {
  take_curve();
  return version_;
}

void SizeFamily::take_curve() {
  if (curve_ == nullptr || curve_->is_elsewhere() || !curve_->is_done(options_->waiting_seconds)) return;
  try {
    for (const Solution& point : curve_->wait().points) plans_.add(point.plan);
  } catch (const std::exception& error) {
    log_line(Severity::kWarning, std::string("the search for plans at all budgets has failed: ") + error.what());
  }
  curve_.reset();
  ++version_;
}

std::optional<FoundPlan> SizeFamily::find(const Graph& graph, const Costs& costs, std::optional<std::int64_t> room) {
  take_curve();
  const std::int64_t budget = room.value_or(std::numeric_limits<std::int64_t>::max());
  auto answer = plans_.adapted(graph, costs, budget);
  if (!answer) return std::nullopt;
  // How near it is to what is possible is found out beside the steps.
  const bool may_be_faster = answer->simulation.recompute_ns > 0;
  return FoundPlan{.status = Status::kFeasible,
                   .plan = std::move(answer->plan),
                   .planner = kPlanner,
                   .simulation = answer->simulation,
                   .is_provisional = may_be_faster,
                   .is_of_family = true};
}

std::int64_t SizeFamily::smallest_peak_bytes(const Program& program, Costs costs) {
  caller_of(program).apply(costs);
  return plans_.smallest_peak_bytes(make_graph(program), costs);
}

bool SizeFamily::has_plan_within(std::int64_t room_bytes, const Program& program) {
  take_curve();
  if (smallest_peak_bytes(program, least_costs(program)) > room_bytes) return false;
  return smallest_peak_bytes(program, price(program)) <= room_bytes;
}

std::shared_ptr<SizeFamily> SizeFamily::in_slices(FormKey key) const {
  const auto found = in_slices_.find(key);
  return found == in_slices_.end() ? nullptr : found->second;
}

void SizeFamily::add_slices(FormKey key, Profiled profiled) {
  if (in_slices_.contains(key)) return;
  in_slices_.emplace(key, std::make_shared<SizeFamily>(std::move(profiled), options_, Search::kNone));
}

void SizeFamily::learn(const FoundPlan& found) {
  has_learned_ = true;
  if (found.found()) add(found.plan);
}

void SizeFamily::add(const Plan& plan) {
  if (!copies(plan) && plans_.add(plan)) ++version_;
}

}  // namespace reprise
