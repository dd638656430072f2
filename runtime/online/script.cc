#include "runtime/online/script.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "reprise/plan.h"
#include "reprise/simulate.h"
#include "reprise/solve.h"

namespace reprise::online {
namespace {

// Memory outside of the log is counted to the next of so many parts of the budget.
constexpr std::int64_t kGrains = 512;

std::int64_t time_of(const StepLog& log) {
  std::int64_t time_ns = 0;
  for (const LoggedCall& call : log.calls) time_ns += call.cost_ns;
  return time_ns;
}

// Turns the actions of a plan into orders: what is freed right after a call is an order after it, and everything from
// the next repeated run on is an order before the call that comes then.
class OrderWriter {
 public:
  OrderWriter(const StepLog& log, const LogGraph& graph)
      : log_(log), graph_(graph), orders_(log.calls.size()), has_run_(graph.call_of.size(), false) {}

  void take(const Action& action) {
    switch (action.kind()) {
      case Action::Kind::kCompute:
      case Action::Kind::kComputeInPlace:
        run(action.op(), action.in_place());
        return;
      case Action::Kind::kFree:
        free(action.value());
        return;
      case Action::Kind::kStore:
      case Action::Kind::kFetch:
        return;  // there is no link to the host
    }
  }
  [[nodiscard]] std::vector<CallOrders> orders() && {
    end_call();
    look_ahead();
    return std::move(orders_);
  }

 private:
  void run(OpId op, bool in_place) {
    const std::uint32_t call = graph_.call_of[index(op)];
    if (call == kNothing) return;
    if (has_run_[index(op)]) {
      waiting_.push_back({in_place ? Order::Kind::kAgainInPlace : Order::Kind::kAgain, call});
      return;
    }
    has_run_[index(op)] = true;
    end_call();
    orders_[call].before = std::exchange(waiting_, {});
    current_ = call;
    in_place_ = in_place;
  }
  void free(ValueId value) {
    if (index(value) >= log_.bytes.size()) return;  // a stand-in
    const auto id = static_cast<std::uint32_t>(index(value));
    if (waiting_.empty() && current_ != kNothing) {
      orders_[current_].after.push_back({Order::Kind::kFree, id});
    } else {
      waiting_.push_back({Order::Kind::kFree, id});
    }
  }
  // What the call wrote over, and was not freed right after it, is read later.
  void end_call() {
    if (current_ == kNothing || in_place_) return;
    CallOrders& orders = orders_[current_];
    for (const LoggedCall::Made& made : log_.calls[current_].makes) {
      const bool is_freed = std::ranges::find(orders.after, made.over, &Order::id) != orders.after.end();
      if (made.over != kNothing && !is_freed) orders.copy.push_back(made.over);
    }
  }

  // From the end: what is freed is made again at a later call, or it is spent.
  void look_ahead() {
    struct Again {
      std::uint32_t at = kNothing;
      std::int64_t cost_ns = 0;
    };
    std::vector<Again> again(log_.bytes.size());
    const auto look_at = [&](Order& order, std::uint32_t call) {
      if (!order.frees()) {
        const LoggedCall& made_again = log_.calls[order.id];
        for (const LoggedCall::Made& made : made_again.makes) again[made.value] = {call, made_again.cost_ns};
        return;
      }
      const auto [at, cost_ns] = again[order.id];
      if (at == kNothing) order.kind = Order::Kind::kSpend;
      order.again_at = at;
      order.saved_ns_per_byte =
          static_cast<double>(cost_ns) / static_cast<double>(std::max<std::int64_t>(1, log_.bytes[order.id]));
    };
    for (auto call = static_cast<std::uint32_t>(orders_.size()); call-- > 0;) {
      CallOrders& orders = orders_[call];
      for (auto order = orders.after.rbegin(); order != orders.after.rend(); ++order) look_at(*order, call);
      for (auto order = orders.before.rbegin(); order != orders.before.rend(); ++order) look_at(*order, call);
    }
  }

  const StepLog& log_;
  const LogGraph& graph_;
  std::vector<CallOrders> orders_;
  std::vector<bool> has_run_;  // by op
  std::vector<Order> waiting_;
  std::uint32_t current_ = kNothing;
  bool in_place_ = false;
};

}  // namespace

std::vector<bool> Script::live_before(std::size_t call) const {
  std::vector<bool> live(log.bytes.size(), false);
  const auto run = [&](std::size_t i, bool in_place) {
    for (const LoggedCall::Made& made : log.calls[i].makes) {
      live[made.value] = true;
      if (in_place && made.over != kNothing) live[made.over] = false;
    }
  };
  for (std::size_t i = 0; i < call; ++i) {
    for (const Order& order : orders[i].before) {
      if (order.frees()) {
        live[order.id] = false;
      } else {
        run(order.id, order.kind == Order::Kind::kAgainInPlace);
      }
    }
    run(i, /*in_place=*/true);
    for (const std::uint32_t value : orders[i].copy) live[value] = true;
    for (const Order& order : orders[i].after) live[order.id] = false;
  }
  return live;
}

Script without_plan(StepLog log) {
  const std::int64_t time_ns = time_of(log);
  return {.log = std::move(log), .orders = {}, .time_ns = time_ns};
}

Script plan_log(StepLog log, std::int64_t budget_bytes, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  Script script = without_plan(std::move(log));
  script.grain_bytes = budget_bytes / kGrains;
  const LogGraph graph = graph_of(script.log, script.grain_bytes);
  Solution found = solve(graph.costed.graph, graph.costed.costs,
                         {.budget_bytes = budget_bytes, .should_stop = [end] { return Clock::now() > end; }});
  if (found.plan.actions.empty()) return script;
  OrderWriter writer(script.log, graph);
  for (const Action& action : found.plan.actions) writer.take(action);
  script.orders = std::move(writer).orders();
  script.plan = std::move(found.plan);
  script.recompute_ns = found.simulation.recompute_ns;
  return script;
}

std::optional<std::int64_t> least_budget(const StepLog& log, std::int64_t above_bytes, double most) {
  constexpr int kSteps = 24;
  const LogGraph graph = graph_of(log, above_bytes / kGrains);
  const auto run = [&](std::int64_t budget_bytes) {
    return solve(graph.costed.graph, graph.costed.costs,
                 {.planner = "online", .budget_bytes = budget_bytes, .judge = Judge::kFormula});
  };
  const std::optional<Formula> plain = run(Costs::kMaxTotalBytes).formula;
  const std::int64_t top = plain ? std::max(plain->peak_bytes, above_bytes) : above_bytes;
  const double allowed_ns = most * static_cast<double>(time_of(log));
  for (int i = 1; i <= kSteps; ++i) {
    const std::int64_t budget = above_bytes + (top - above_bytes) / kSteps * i + (i == kSteps ? kSteps : 0);
    const Solution found = run(budget);
    if (found.found() && found.formula && static_cast<double>(found.formula->overhead) <= allowed_ns) return budget;
  }
  return std::nullopt;
}

}  // namespace reprise::online
