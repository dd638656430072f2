#include "runtime/session/background_search.h"

#include <unistd.h>

#include <chrono>
#include <exception>
#include <utility>

namespace reprise {
namespace {

using Clock = std::chrono::steady_clock;

// Thrown out of a search that nobody waits for any more: putting a last plan together would take time.
class Ended : public std::exception {};

}  // namespace

BackgroundSearch::BackgroundSearch(Graph graph, Costs costs, PlanMethod method, std::int64_t budget_bytes,
                                   double seconds)
    : graph_(std::move(graph)),
      costs_(std::move(costs)),
      method_(std::move(method)),
      budget_bytes_(budget_bytes),
      seconds_(seconds),
      process_(getpid()) {
  std::packaged_task<Result()> task([this] { return search(); });
  result_ = task.get_future();
  thread_ = std::thread(std::move(task));
}

BackgroundSearch::~BackgroundSearch() {
  ended_ = true;
  if (is_elsewhere()) {
    thread_.detach();  // there is no thread to wait for
  } else {
    thread_.join();
  }
}

bool BackgroundSearch::is_done() const {
  return result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

bool BackgroundSearch::is_elsewhere() const { return getpid() != process_; }

BackgroundSearch::Result BackgroundSearch::search() const {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds_);
  SolveOptions options = method_.options(budget_bytes_);
  options.should_stop = [this, end] {
    if (ended_) throw Ended();
    return Clock::now() > end;
  };
  Solution found = solve(graph_, costs_, options);
  return {.solution = std::move(found), .is_complete = Clock::now() <= end};
}

}  // namespace reprise
