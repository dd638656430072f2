// The time of a plan by the clocks of simulate.h, action by action.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "graph/by_id.h"
#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise::detail {

class Clocks {
 public:
  // Stands for a time that does not fit into 64 bits.
  static constexpr std::int64_t kTooLong = std::numeric_limits<std::int64_t>::max();
  [[nodiscard]] static std::int64_t sum_or_too_long(std::int64_t a, std::int64_t b) {
    return b > kTooLong - a ? kTooLong : a + b;
  }

  struct Span {
    std::int64_t begin_ns;
    std::int64_t end_ns;
  };

  // The graph and the costs must outlive it.
  Clocks(const Graph& graph, const Costs& costs);

  // When the run, on the device or a communicator, or the copy that the action begins goes on. Throws InputError if it
  // copies and there is no link.
  Span take(Action action);

  [[nodiscard]] std::int64_t now_ns() const { return device_ns_; }
  [[nodiscard]] std::int64_t wait_ns() const { return wait_ns_; }        // for copies
  [[nodiscard]] std::int64_t exposed_ns() const { return exposed_ns_; }  // for communicators

 private:
  static constexpr std::int64_t kNothing = -1;

  [[nodiscard]] const Link& link() const;
  Span compute(OpId op, bool in_place);
  Span take_turn(std::int64_t& clock_ns, std::int64_t not_before_ns, std::int64_t duration_ns) const;
  void wait_until(std::int64_t at_ns, std::int64_t& waited_ns);
  void wait_for_arrival(ValueId value);
  void wait_for_store(ValueId value);

  const Graph& graph_;
  const Costs& costs_;
  std::int64_t device_ns_ = 0;
  std::int64_t down_ns_ = 0;
  std::int64_t up_ns_ = 0;
  std::vector<std::int64_t> communicator_ns_;  // by stream, from 1 on
  std::int64_t wait_ns_ = 0;
  std::int64_t exposed_ns_ = 0;
  ByValue<std::int64_t> stored_ns_;   // when its copy to the host is done; kNothing: there is none
  ByValue<std::int64_t> arrival_ns_;  // of a copy back or of a collective; kNothing: it is not on its way
};

}  // namespace reprise::detail
