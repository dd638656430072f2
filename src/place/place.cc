#include "reprise/place.h"

#include "place/requests.h"
#include "reprise/error.h"

namespace reprise {

Placement place(const Graph& graph, const Costs& costs, const Plan& plan, const PlaceOptions& options) {
  check_costs(graph, costs);
  const std::vector<detail::Request> requests = detail::requests(graph, costs, plan);
  std::vector<Buffer> buffers;
  buffers.reserve(requests.size());
  for (const detail::Request& request : requests) buffers.push_back(request.buffer);
  const Packing packing = pack(buffers, options);
  Placement found{.addresses = {},
                  .arena_bytes = packing.arena_bytes,
                  .alignment_bytes = options.alignment_bytes,
                  .load_bytes = packing.load_bytes};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    found.addresses.push_back(
        {.action = requests[i].buffer.begin, .value = requests[i].value, .offset = packing.offsets[i]});
  }
  if (const auto wrong = validate_addresses(graph, costs, plan, found)) {
    throw InternalError("place() made wrong addresses: " + *wrong);
  }
  return found;
}

}  // namespace reprise
