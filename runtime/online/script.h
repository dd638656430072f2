// What to do at each call of a step that comes again: a plan of its log, as orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reprise/plan.h"
#include "runtime/online/step_log.h"

namespace reprise::online {

struct Order {
  enum class Kind : std::uint8_t {
    kFree,          // a value may be taken away
    kSpend,         // the same, and it is not read again
    kAgain,         // make a call again
    kAgainInPlace,  // the same, in the memory of what it writes over
  };
  Kind kind = Kind::kFree;
  std::uint32_t id = 0;               // of a value, or the number of a call
  std::uint32_t again_at = kNothing;  // of a value that is freed: the call before which it is made again
  double saved_ns_per_byte = 0;       // if it is still there by then
  [[nodiscard]] bool frees() const { return kind == Kind::kFree || kind == Kind::kSpend; }
};

struct CallOrders {
  std::vector<Order> before;
  std::vector<Order> after;
  std::vector<std::uint32_t> copy;  // values that the call writes over and that are read later
};

struct Script {
  StepLog log;
  std::vector<CallOrders> orders;  // by call; empty: there is no plan, and evictions are made by rule
  Plan plan;                       // that they are made of
  std::int64_t grain_bytes = 0;    // of the graph that it is a plan of
  bool is_revised = false;         // planned with times of two steps
  std::int64_t recompute_ns = 0;   // as planned
  std::int64_t time_ns = 0;        // of all calls, as logged

  [[nodiscard]] bool has_plan() const { return !orders.empty(); }
  // Which values are there before a call, if the orders were obeyed up to it.
  [[nodiscard]] std::vector<bool> live_before(std::size_t call) const;
};

// Plans the log in at most so many seconds, if the core finds a plan within the budget.
[[nodiscard]] Script plan_log(StepLog log, std::int64_t budget_bytes, double seconds);
// A step that is not planned.
[[nodiscard]] Script without_plan(StepLog log);

// The least of some budgets above the given one within which the rule of evict.h, simulated on the log, makes calls
// again for at most `most` times as long as the calls themselves take. Nothing: it does not within any of them.
[[nodiscard]] std::optional<std::int64_t> least_budget(const StepLog& log, std::int64_t above_bytes, double most);

}  // namespace reprise::online
