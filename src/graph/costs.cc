#include "reprise/costs.h"

#include <string>

#include "reprise/error.h"

namespace reprise {
namespace {

// Sum of non-negative terms that stays below `limit`.
class BoundedSum {
 public:
  BoundedSum(std::int64_t limit, const char* what) : limit_(limit), what_(what) {}

  void add(std::int64_t term) {
    if (term < 0) throw InputError(std::string(what_) + " is negative: " + std::to_string(term));
    if (term >= limit_ - sum_) throw InputError(std::string(what_) + ": the sum over the graph is 2^59 or more");
    sum_ += term;
  }

 private:
  std::int64_t limit_;
  std::int64_t sum_ = 0;
  const char* what_;
};

void check_count(std::size_t numbers, std::size_t count, const char* what, const char* of) {
  if (numbers == count) return;
  throw InputError(std::string(what) + ": " + std::to_string(numbers) + " numbers for " + std::to_string(count) + " " +
                   of);
}

void check_overwrites(const Graph& graph, const Costs& costs) {
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const ValueId old = graph.overwrites(value_id(i));
    if (old == kNoValue || costs.value_bytes[i] == costs.value_bytes[index(old)]) continue;
    const OpId op = graph.producer(value_id(i));
    throw InputError("op " + std::to_string(index(op)) + " '" + graph.op_name(op) + "': value " + std::to_string(i) +
                     " overwrites value " + std::to_string(index(old)) + ", which has another size");
  }
}

}  // namespace

void check_costs(const Graph& graph, const Costs& costs) {
  check_count(costs.time_ns.size(), graph.num_ops(), "time_ns", "ops");
  check_count(costs.workspace_bytes.size(), graph.num_ops(), "workspace_bytes", "ops");
  check_count(costs.value_bytes.size(), graph.num_values(), "value_bytes", "values");
  BoundedSum bytes(Costs::kMaxTotalBytes, "bytes");
  BoundedSum time(Costs::kMaxTotalTime, "time_ns");
  for (const std::int64_t b : costs.value_bytes) bytes.add(b);
  for (const std::int64_t b : costs.workspace_bytes) bytes.add(b);
  for (const std::int64_t t : costs.time_ns) time.add(t);
  check_overwrites(graph, costs);
}

}  // namespace reprise
