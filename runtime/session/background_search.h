// A search for a plan that goes on in a thread of its own while steps run.
//
// It works on copies and does nothing but search: files, messages and the step itself are left to whoever asks for the
// result.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <thread>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/solve.h"
#include "runtime/session/plan_method.h"

namespace reprise {

class BackgroundSearch {
 public:
  BackgroundSearch(Graph graph, Costs costs, PlanMethod method, std::int64_t budget_bytes, double seconds);
  // Ends the search; what it has found is lost.
  ~BackgroundSearch();
  BackgroundSearch(const BackgroundSearch&) = delete;
  BackgroundSearch& operator=(const BackgroundSearch&) = delete;

  [[nodiscard]] const PlanMethod& method() const { return method_; }
  [[nodiscard]] std::int64_t budget_bytes() const { return budget_bytes_; }
  [[nodiscard]] double seconds() const { return seconds_; }
  // Whether wait() would not have to wait.
  [[nodiscard]] bool is_done() const;
  // Whether this is a copy in another process, which does not have the thread.
  [[nodiscard]] bool is_elsewhere() const;

  struct Result {
    Solution solution{};
    bool is_complete = false;  // it did not run out of time
  };
  // Once. Throws what the search threw. REQUIRES: it is not elsewhere.
  [[nodiscard]] Result wait() { return result_.get(); }

 private:
  [[nodiscard]] Result search() const;

  const Graph graph_;
  const Costs costs_;
  const PlanMethod method_;
  const std::int64_t budget_bytes_;
  const double seconds_;
  const pid_t process_;
  std::atomic<bool> ended_ = false;
  std::future<Result> result_;
  std::thread thread_;
};

}  // namespace reprise
