#include "solve/lower_sets/transitions.h"

namespace reprise::detail {

Transitions::Transitions(const ForwardView& view, const LowerSetFamily& family, bool keep_last)
    : view_(view),
      family_(family),
      keep_last_(keep_last),
      words_((family.size() + 63) / 64),
      holders_(view.num_nodes() * words_, 0) {
  for (SetId set = 0; set < family.size(); ++set) {
    for (NodeId node = 0; node < view.num_nodes(); ++node) {
      if (family.contains(set, node)) holders_[node * words_ + set / 64] |= std::uint64_t{1} << (set % 64);
    }
  }
}

Part Transitions::single(SetId from, SetId to) const {
  Part result{.mask = 0, .word = 0, .cached_bytes = 0, .cached_time = 0};
  for (const NodeId node : family_.boundary(to)) {
    if (family_.contains(from, node)) continue;
    result.cached_bytes += view_.bytes[node];
    result.cached_time += view_.time[node];
  }
  return result;
}

}  // namespace reprise::detail
