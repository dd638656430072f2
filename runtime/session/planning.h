// How a session comes to its plans: soon for a step that waits, and then better ones beside the steps; in full for
// whoever asks for a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/program/program.h"
#include "runtime/session/background_search.h"
#include "runtime/session/options.h"
#include "runtime/session/plan_book.h"

namespace reprise {

class Planning {
 public:
  // What is planned; it must live as long as the call that gets it.
  struct Step {
    const Program& program;
    const Graph& graph;
    const Costs& costs;
    PlanMethod method;
  };

  explicit Planning(std::shared_ptr<const SessionOptions> options) : options_(std::move(options)) {}

  // Searches as long as the options allow. Without a room, the plan without recomputation.
  [[nodiscard]] FoundPlan find(const Step& step, std::optional<std::int64_t> room);
  // The same after a short search, if that finds a plan; it is provisional if a longer search may find a faster one.
  [[nodiscard]] FoundPlan find_soon(const Step& step, std::optional<std::int64_t> room);

  // After a short search alone, also where that finds no plan.
  [[nodiscard]] FoundPlan find_at_once(const Step& step, std::optional<std::int64_t> room);

  // Begins a full search, beside the steps, for a better plan than this one, which was made for this room. REQUIRES:
  // there is none.
  void begin(const Step& step, std::int64_t room, const FoundPlan& plan);
  [[nodiscard]] bool is_going_on() const { return search_ != nullptr && !search_->is_elsewhere(); }
  [[nodiscard]] bool is_done() const { return is_going_on() && search_->is_done(); }
  // Waits for its end, keeps what it found in the file, and returns the fastest plan known for its room; nothing if it
  // has failed, or if the plan is so near what is possible that there was no search. REQUIRES: it is going on, and the
  // step's graph and costs are what they were.
  [[nodiscard]] std::optional<FoundPlan> end(const Step& step);
  void stop() { search_.reset(); }

  [[nodiscard]] double seconds() const { return seconds_; }  // that somebody waited for

 private:
  std::shared_ptr<const SessionOptions> options_;
  std::unique_ptr<BackgroundSearch> search_;
  double seconds_ = 0;
};

}  // namespace reprise
