// A search for a plan that goes on beside the steps.
#pragma once

#include <cstdint>
#include <optional>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan_family.h"
#include "reprise/solve.h"
#include "runtime/session/background_task.h"
#include "runtime/session/plan_method.h"

namespace reprise {

class BackgroundSearch {
 public:
  // `known` is a plan within the budget: if no plan can be much faster, nothing is searched for.
  BackgroundSearch(Graph graph, Costs costs, PlanMethod method, std::int64_t budget_bytes, double seconds,
                   std::optional<PlanFamily::Answer> known = std::nullopt);

  [[nodiscard]] const PlanMethod& method() const { return method_; }
  [[nodiscard]] std::int64_t budget_bytes() const { return budget_bytes_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  // Whether wait() would not have to wait.
  [[nodiscard]] bool is_done() const { return task_.is_done(); }
  // Whether this is a copy in another process, which does not have the thread.
  [[nodiscard]] bool is_elsewhere() const { return task_.is_elsewhere(); }

  struct Result {
    std::optional<Solution> solution{};  // nothing: there was no search
    bool is_complete = false;            // it did not run out of time
  };
  // Once. Throws what the search threw. REQUIRES: it is not elsewhere.
  [[nodiscard]] Result wait() { return task_.wait(); }

 private:
  const PlanMethod method_;
  const std::int64_t budget_bytes_;
  const double seconds_;
  BackgroundTask<Result> task_;
};

}  // namespace reprise
