// What plans made at one size are worth at others, beside a whole search at each.
//
//   family_of_sizes REFERENCE.graph.json OTHER.graph.json...
//
// The files have the same structure and other costs. Plans are those of curve() at the reference. At shares of the
// memory of each other size (above what is there from the start), it asks families of several sizes, an adapted plan,
// and `auto`. Prints one JSON object. bench/family.py makes the files and calls this.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reprise/reprise.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::int64_t, 6> kShares{80, 60, 50, 40, 30, 20};
constexpr std::array<std::size_t, 5> kSizes{12, 24, PlanFamily::kMostPlans, 96, 192};
constexpr int kRepeats = 5;

CostedGraph read(const std::string& path) { return parse_graph(read_text(path), path); }

// The time of the processor, because others may use the machine too.
double now_ms() { return 1000. * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double rounded(double number) { return std::round(number * 100) / 100; }

double median_ms(const std::function<void()>& work) {
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    const double begin = now_ms();
    work();
    times.push_back(now_ms() - begin);
  }
  std::ranges::sort(times);
  return rounded(times[kRepeats / 2]);
}

Json time_of(const std::optional<PlanFamily::Answer>& answer) {
  return answer ? Json(answer->simulation.time_ns) : Json(nullptr);
}

std::int64_t start_bytes(const CostedGraph& step) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < step.graph.num_values(); ++i) {
    if (step.graph.residence(value_id(i)) != Residence::kPlanned) bytes += step.costs.value_bytes[i];
  }
  return bytes;
}

using Families = std::map<std::size_t, PlanFamily>;

Json row(const Families& families, const CostedGraph& step, std::int64_t share, std::int64_t budget_bytes) {
  const Graph& graph = step.graph;
  const Costs& costs = step.costs;
  Json found{{"share", share}, {"budget_bytes", budget_bytes}};
  const double begin = now_ms();
  const Solution searched = solve(graph, costs, {.budget_bytes = budget_bytes});
  found["auto"] = searched.found() ? Json(searched.simulation.time_ns) : Json(nullptr);
  found["auto_ms"] = rounded(now_ms() - begin);
  found["bound"] = searched.lower_bound_ns ? Json(*searched.lower_bound_ns) : Json(nullptr);
  for (const auto& [most, family] : families) {
    found["fastest_of"][std::to_string(most)] = time_of(family.fastest(graph, costs, budget_bytes));
  }
  const PlanFamily& family = families.at(PlanFamily::kMostPlans);
  std::optional<PlanFamily::Answer> fastest;
  std::optional<PlanFamily::Answer> adapted;
  found["fastest_ms"] = median_ms([&] { fastest = family.fastest(graph, costs, budget_bytes); });
  found["adapted_ms"] = median_ms([&] { adapted = family.adapted(graph, costs, budget_bytes); });
  found["fastest"] = time_of(fastest);
  found["adapted"] = time_of(adapted);
  if (fastest) {
    bool far = false;
    found["is_far_ms"] = median_ms([&] { far = is_far_from_bound(graph, costs, *fastest); });
    found["is_far"] = far;
  }
  return found;
}

Json size(const Families& families, const std::string& path) {
  const CostedGraph step = read(path);
  const std::int64_t start = start_bytes(step);
  const Simulation plain = solve(step.graph, step.costs, {.planner = "none"}).simulation;
  const PlanFamily& family = families.at(PlanFamily::kMostPlans);
  Json found{{"file", path},
             {"plain_ns", plain.time_ns},
             {"start_bytes", start},
             {"plain_bytes", plain.peak_bytes},
             {"smallest_peak_bytes", family.smallest_peak_bytes(step.graph, step.costs)},
             {"rows", Json::array()}};
  for (const std::int64_t share : kShares) {
    found["rows"].push_back(row(families, step, share, start + (plain.peak_bytes - start) * share / 100));
  }
  return found;
}

Json compare(const std::string& reference, const std::vector<std::string>& others) {
  const auto [graph, costs] = read(reference);
  const double begin = now_ms();
  const Curve plans = curve(graph, costs, {});
  Json found{{"reference", reference}, {"ops", graph.num_ops()}, {"curve_ms", rounded(now_ms() - begin)}};
  Families families;
  for (const std::size_t most : kSizes) {
    PlanFamily& family = families.emplace(most, PlanFamily(graph, costs, most)).first->second;
    for (const Solution& point : plans.points) family.add(point.plan);
  }
  found["curve_plans"] = plans.points.size();
  found["kept"] = families.at(PlanFamily::kMostPlans).size();
  found["sizes"] = Json::array();
  for (const std::string& other : others) found["sizes"].push_back(size(families, other));
  return found;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  const std::vector<std::string> files(argv + 1, argv + argc);
  if (files.size() < 2) {
    std::fputs("usage: family_of_sizes REFERENCE.graph.json OTHER.graph.json...\n", stderr);
    return 2;
  }
  try {
    std::puts(reprise::compare(files[0], {files.begin() + 1, files.end()}).dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "family_of_sizes: %s\n", error.what());
    return 1;
  }
  return 0;
}
