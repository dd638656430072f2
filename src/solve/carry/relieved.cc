#include "solve/carry/relieved.h"

#include <algorithm>

#include "solve/auto/price_search.h"
#include "solve/planner.h"
#include "solve/planner_knobs.h"

namespace reprise::detail {
namespace {

constexpr double kLeastShare = 0.03;  // of the excess: the least that a pace carries by the caller's op
constexpr double kMostShare = 1.5;
constexpr double kStep = 1.09;  // from one pace to the next
constexpr int kAimEvery = 8;
constexpr std::size_t kPaces = 45;  // between them

}  // namespace

RelievedSearch::RelievedSearch(const Problem& problem, const SolveOptions& options, const Plan& start)
    : problem_(problem),
      options_(options),
      model_(problem.step(), problem.costs()),
      best_{choice_of(model_, start), plain_choice(model_)} {}

ByOp<std::int64_t> RelievedSearch::relief(double bytes_per_ns) const {
  double forward_ns = 0, backward_ns = 0;
  for (OpId op{0}; index(op) < model_.num_ops(); ++op) {
    (op < model_.caller ? forward_ns : backward_ns) += static_cast<double>(model_.ops[op].time_ns);
  }
  ByOp<std::int64_t> found;
  double before_ns = 0;
  for (OpId op{0}; index(op) < model_.num_ops(); ++op) {
    // An op of forward needs memory mostly when it runs again, at the same distance from the caller's op.
    const double left_ns =
        op < model_.caller ? before_ns / std::max(1.0, forward_ns) * backward_ns : forward_ns + backward_ns - before_ns;
    found.push_back(static_cast<std::int64_t>(bytes_per_ns * std::clamp(left_ns, 0.0, forward_ns)));
    before_ns += static_cast<double>(model_.ops[op].time_ns);
  }
  return found;
}

void RelievedSearch::run(double most_bytes_per_ns, std::int64_t excess_bytes, const Carry& carry) {
  double forward_ns = 1;
  for (OpId op{0}; op < model_.caller; ++op) forward_ns += static_cast<double>(model_.ops[op].time_ns);
  const auto excess = static_cast<double>(excess_bytes);
  double pace = kLeastShare * excess / forward_ns;
  const double most = std::min(most_bytes_per_ns, kMostShare * excess / forward_ns);
  for (int round = 0;; ++round) {
    if (pace > most || asked_to_stop(options_)) return;
    if (const std::optional<Plan> base = search(relief(pace), round % kAimEvery == 0)) carry(*base, pace);
    pace *= kStep;
  }
}

std::optional<Plan> RelievedSearch::search(const ByOp<std::int64_t>& relief, bool aims) {
  StepModel model(problem_.step(), problem_.costs());
  for (OpId op{0}; index(op) < model_.num_ops(); ++op) model.ops[op].transient_bytes -= relief[op];
  constexpr std::size_t kRounds = 15;
  const std::int64_t budget = *options_.budget_bytes;
  Evaluator evaluator(model);
  Pool pool;
  for (const Choice& choice : best_) pool.offer(evaluator.evaluate(choice), choice);
  const std::size_t most = options_.work / 3 * 2 / kPaces;
  std::size_t other_work = 0;
  const LocalSearch* counted = nullptr;
  const auto out_of_work = [&] {
    return evaluator.work() + other_work + (counted != nullptr ? counted->work() : 0) > most || asked_to_stop(options_);
  };
  if (aims && knobs_of(options_).techniques.aimed_prices) {
    PriceSearch prices(model, evaluator, pool, best_.front().order, out_of_work);
    prices.aim(budget, {}, kRounds);
    other_work = prices.work();
  }
  LocalSearch local(model, evaluator, pool, out_of_work, {});
  counted = &local;
  if (knobs_of(options_).techniques.local_search) {
    Choice choice = best_.front();
    if (aims) {
      local.improve(budget);
    } else if (local.repair(choice, budget)) {
      local.polish(choice, budget, /*reorder=*/false);
    }
  }
  const auto found = pool.fastest(budget);
  if (found == pool.entries().end()) return std::nullopt;
  best_.front() = found->second.choice;
  if (evaluator.evaluate(best_.front()) == Cost{}) return std::nullopt;
  return problem_.plan(evaluator.runs());
}

}  // namespace reprise::detail
