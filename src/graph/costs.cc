#include "reprise/costs.h"

#include <limits>
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

__extension__ using Wide = __int128;

std::int64_t copy_ns(std::int64_t bytes, std::int64_t bytes_per_s, std::int64_t latency_ns) {
  constexpr Wide kNsPerSecond = 1'000'000'000;
  const Wide ns = (bytes * kNsPerSecond + bytes_per_s - 1) / bytes_per_s + latency_ns;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return ns > kMost ? kMost : static_cast<std::int64_t>(ns);
}

void check_link(const Link& link) {
  if (link.down_bytes_per_s <= 0 || link.up_bytes_per_s <= 0) {
    throw InputError("a link's rates must be above zero, got " + std::to_string(link.down_bytes_per_s) + " and " +
                     std::to_string(link.up_bytes_per_s) + " bytes per second");
  }
  if (link.latency_ns < 0 || link.latency_ns >= Costs::kMaxTotalTime) {
    throw InputError("a link's latency_ns is negative or 2^59 or more: " + std::to_string(link.latency_ns));
  }
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

// What a collective takes is counted at its start.
void check_waits(const Graph& graph, const Costs& costs) {
  for (std::size_t i = 0; i < graph.num_ops() && graph.num_communicators() > 0; ++i) {
    if (!graph.is_wait(op_id(i)) || (costs.time_ns[i] == 0 && costs.workspace_bytes[i] == 0)) continue;
    throw InputError("op " + std::to_string(i) + " '" + graph.op_name(op_id(i)) +
                     "': a wait has no time and no workspace of its own; its start has them");
  }
}

}  // namespace

std::int64_t Link::down_ns(std::int64_t bytes) const { return copy_ns(bytes, down_bytes_per_s, latency_ns); }
std::int64_t Link::up_ns(std::int64_t bytes) const { return copy_ns(bytes, up_bytes_per_s, latency_ns); }

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
  check_waits(graph, costs);
  if (costs.link) check_link(*costs.link);
}

}  // namespace reprise
