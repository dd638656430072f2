#include "runtime/session/background_search.h"

#include <functional>
#include <utility>

namespace reprise {

BackgroundSearch::BackgroundSearch(Graph graph, Costs costs, PlanMethod method, std::int64_t budget_bytes,
                                   double seconds, std::optional<PlanFamily::Answer> known)
    : method_(std::move(method)),
      budget_bytes_(budget_bytes),
      seconds_(seconds),
      task_(
          [graph = std::move(graph), costs = std::move(costs), known = std::move(known),
           options = method_.options(budget_bytes)](const std::function<bool()>& should_stop) mutable {
            if (known && !is_far_from_bound(graph, costs, *known)) return Result();
            options.should_stop = should_stop;
            Solution found = solve(graph, costs, options);
            return Result{.solution = std::move(found), .is_complete = !should_stop()};
          },
          seconds) {}

}  // namespace reprise
