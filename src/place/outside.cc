#include <algorithm>
#include <vector>

#include "place/requests.h"
#include "reprise/place.h"
#include "reprise/simulate.h"

namespace reprise {

std::int64_t bytes_outside(const Graph& graph, const Costs& costs, const Plan& plan) {
  const Timeline replayed = timeline(graph, costs, plan);
  std::vector<std::int64_t> inside(plan.actions.size() + 1, 0);
  for (const detail::Request& request : detail::requests(graph, costs, plan)) {
    inside[request.buffer.begin] += request.buffer.bytes;
    inside[request.buffer.end] -= request.buffer.bytes;
  }
  std::int64_t most = replayed.start_bytes, now = 0;
  for (std::size_t at = 0; at < plan.actions.size(); ++at) {
    now += inside[at];
    if (plan.actions[at].computes()) most = std::max(most, replayed.during_bytes[at] - now);
  }
  return most;
}

}  // namespace reprise
