// Fixed policies for sharded parameters beside `auto`, on the steps of data/steps/sharded_llama.py.
//
//   overlap STEP.graph.json...
//
// A policy says what is kept from forward to backward: the weights (ZeRO-2) or none (ZeRO-3, whose gathers run again),
// and all activations, those between layers alone, or also the results of products and attention. What is not kept is
// made again once, when backward first reads it, and stays to its last use. ZeRO gathers each weight before its use,
// and is hoisted without a budget, as `auto`'s plans are within theirs. FSDP2 runs in its own order (fsdp_order.h).
// `auto` then has the policy's peak as its budget.
// Prints one JSON object; bench/overlap.py calls this.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp_order.h"
#include "plan/liveness.h"
#include "reprise/reprise.h"
#include "solve/auto/evaluator.h"
#include "solve/auto/step_model.h"
#include "solve/overlap/hoist.h"
#include "solve/overlap/joined.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 2;

enum class Kept { kAll, kProducts, kBetweenLayers };

struct Policy {
  const char* name;
  bool weights;
  Kept activations;
  std::optional<bench::Root> fsdp = std::nullopt;  // in FSDP2's own order
};

// What is outside of the layers is gathered once by all of them, as by the root of FSDP2.
constexpr std::array kPolicies{
    Policy{"FSDP2, checkpointed layers", false, Kept::kBetweenLayers, bench::Root::kWhole},
    Policy{"FSDP2, checkpointed layers, embedding and head apart", false, Kept::kBetweenLayers, bench::Root::kApart},
    Policy{"ZeRO-3, products kept", false, Kept::kProducts},
    Policy{"ZeRO-3, everything kept", false, Kept::kAll},
    Policy{"ZeRO-2, checkpointed layers", true, Kept::kBetweenLayers},
    Policy{"ZeRO-2, products kept", true, Kept::kProducts},
};

bool is_kept(const Graph& graph, const Policy& policy, ValueId value) {
  const OpId op = graph.producer(value);
  const std::string_view name = graph.op_name(op), scope = graph.scope_name(op);
  if (!scope.starts_with("layers.")) return true;
  if (name.starts_with("all_gather")) return policy.weights;
  switch (policy.activations) {
    case Kept::kAll:
      return true;
    case Kept::kProducts:
      if (name.starts_with("mm") || name.starts_with("attention")) return true;
      [[fallthrough]];
    case Kept::kBetweenLayers: {
      // The last op of a layer: it is read by another layer, or by none.
      const auto elsewhere = [&](OpId reader) {
        return graph.phase(reader) == Phase::kForward && !graph.scope_name(reader).starts_with(std::string(scope));
      };
      return name.starts_with("add") && std::ranges::any_of(graph.readers(value), elsewhere);
    }
  }
  return true;
}

std::vector<OpId> runs_of(const CostedGraph& step, const Policy& policy) {
  const detail::JoinedStep joined(step.graph, step.costs, 1);
  const detail::StepModel model(joined.graph(), joined.costs());
  detail::Choice choice = plain_choice(model);
  for (const ValueId v : model.droppable_values) {
    if (!is_kept(joined.graph(), policy, v)) choice.labels[v] = detail::Label::kHold;
  }
  detail::Evaluator evaluator(model);
  (void)evaluator.evaluate(choice);
  return joined.whole(evaluator.runs());
}

Plan plan_of(const CostedGraph& step, const Policy& policy) {
  const std::vector<OpId> runs = runs_of(step, policy);
  if (policy.fsdp) return detail::place_frees(step.graph, bench::fsdp_order(step.graph, runs, *policy.fsdp));
  return detail::hoist(step.graph, step.costs, runs, kUnlimited);
}

Json described(const CostedGraph& step, const Plan& plan) {
  const auto& [graph, costs] = step;
  if (const auto violation = validate(graph, plan)) throw InternalError(violation->message);
  const Simulation found = simulate(graph, costs, plan);
  std::vector<int> runs(graph.num_ops(), 0);
  int again = 0;
  for (const Action action : plan.actions) {
    if (action.computes() && runs[index(action.op())]++ > 0 && graph.is_start(action.op())) ++again;
  }
  return {{"peak_bytes", found.peak_bytes},
          {"time_ns", found.time_ns},
          {"recompute_ns", found.recompute_ns},
          {"exposed_ns", found.exposed_ns},
          {"gathers_again", again}};
}

// The time of the processor, because others may use the machine too.
double now_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Json planned(const CostedGraph& step, std::int64_t budget_bytes) {
  const double begin = now_s();
  const Solution found = solve(step.graph, step.costs, {.budget_bytes = budget_bytes});
  const double seconds = std::round((now_s() - begin) * 100) / 100;
  if (!found.found()) return {{"feasible", false}, {"seconds", seconds}};
  Json made = described(step, found.plan);
  made["lower_bound_ns"] = found.lower_bound_ns ? Json(*found.lower_bound_ns) : Json(nullptr);
  made["seconds"] = seconds;
  return made;
}

Json compare(const std::string& path) {
  const CostedGraph step = parse_graph(read_text(path), path);
  std::vector<OpId> captured;
  for (std::size_t i = 0; i < step.graph.num_ops(); ++i) captured.push_back(op_id(i));
  Json found{{"step", step.graph.name()},
             {"ops", step.graph.num_ops()},
             {"neither", described(step, detail::hoist(step.graph, step.costs, captured, kUnlimited))},
             {"policies", Json::array()}};
  for (const Policy& policy : kPolicies) {
    Json row{{"policy", policy.name}, {"fixed", described(step, plan_of(step, policy))}};
    const std::int64_t budget = row["fixed"]["peak_bytes"];
    row["auto"] = planned(step, budget);
    found["policies"].push_back(std::move(row));
  }
  return found;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  try {
    reprise::Json found = reprise::Json::array();
    for (int i = 1; i < argc; ++i) found.push_back(reprise::compare(argv[i]));
    std::puts(found.dump(1).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "overlap: %s\n", error.what());
    return 1;
  }
  return 0;
}
