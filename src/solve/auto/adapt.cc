#include "solve/auto/adapt.h"

#include "plan/expand.h"
#include "plan/liveness.h"
#include "solve/auto/local_search.h"

namespace reprise::detail {

std::optional<Plan> adapt(const Graph& graph, const Costs& costs, std::span<const Plan> plans,
                          std::int64_t budget_bytes, std::size_t work) {
  const StepModel model(graph, costs);
  Evaluator evaluator(model);
  Pool pool;
  const LocalSearch* counted = nullptr;
  const auto out_of_work = [&] { return evaluator.work() + (counted != nullptr ? counted->work() : 0) > work; };
  for (const Plan& plan : plans) {
    if (out_of_work()) break;
    const Choice choice = choice_of(model, plan);
    pool.offer(evaluator.evaluate(choice), choice);
  }
  LocalSearch local(model, evaluator, pool, out_of_work, {});
  counted = &local;
  local.improve(budget_bytes);
  const auto best = pool.fastest(budget_bytes);
  if (best == pool.entries().end() || evaluator.evaluate(best->second.choice) == Cost{}) return std::nullopt;
  return place_frees(graph, without_dead_reruns(graph, evaluator.runs()));
}

}  // namespace reprise::detail
