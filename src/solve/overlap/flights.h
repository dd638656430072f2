// The runs of a step with the places of its collectives: how long it takes, and how many bytes it needs where.
//
// All runs except starts and the waits of `once` collectives keep their order; place i lies before the i-th of them,
// and what floats (starts, and these waits) lies at places. At one place, things stand in the order in which the runs
// came. The start of a gather takes its *feeders* with it: the ops just before it that make nothing but its operands,
// from what is there when the step begins, for example the cast of a shard.
//
// Moving a start up adds what it makes to the bytes of what it passes; moving a wait down adds what is freed after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "graph/by_id.h"
#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise::detail {

// One run of a collective.
struct Flight {
  OpId start;
  OpId wait;
  std::uint32_t stream;
  std::int64_t time_ns;
  std::vector<OpId> feeders{};
  std::int64_t feeders_ns = 0;
  std::int64_t up_bytes = 0;         // what the feeders and the start make
  std::int64_t down_bytes = 0;       // what is freed after the wait
  std::int64_t workspace_bytes = 0;  // of the feeders and the start, the largest
  bool floats = false;               // its wait may move: it is `once`
  std::size_t order = 0;             // of its start in the runs; its wait comes next
  std::size_t home = 0;              // the place of both at first
  std::size_t first_place = 0;       // of its start, at the earliest
  std::size_t last_place = 0;        // of its wait, at the latest
  std::size_t start_at = 0;
  std::size_t wait_at = 0;
  // As of the last call of Flights::fly().
  std::int64_t ready_ns = 0;
  std::int64_t exposed_ns = 0;
};

class Flights {
 public:
  // The graph and the costs must outlive it.
  Flights(const Graph& graph, const Costs& costs, std::span<const OpId> runs);

  [[nodiscard]] std::vector<Flight>& all() { return flights_; }
  [[nodiscard]] const std::vector<Flight>& all() const { return flights_; }  // by the place of their waits at first
  [[nodiscard]] std::size_t places() const { return base_.size() + 1; }
  // Twice as many as places: at 2 i the most at place i, at 2 i + 1 during the run after it.
  [[nodiscard]] const std::vector<std::int64_t>& bytes() const { return bytes_; }
  // By place, when the device came there in the last flight.
  [[nodiscard]] const std::vector<std::int64_t>& clock_ns() const { return clock_ns_; }
  [[nodiscard]] std::int64_t peak_bytes() const;

  void move_start(Flight& flight, std::size_t place);
  void move_wait(Flight& flight, std::size_t place);
  // Moves every wait that floats to where its collective is through, as starts are placed now.
  void float_waits();
  // Lets all go by the clocks of simulate.h; returns the time of the step.
  std::int64_t fly();
  [[nodiscard]] std::vector<OpId> runs();

 private:
  struct Event {
    std::size_t place;
    std::size_t order;
    std::uint32_t flight;
    bool wait;
  };
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  struct Item {
    OpId op;
    bool floats;
  };
  [[nodiscard]] std::vector<Item> items();
  void divide(std::span<const OpId> runs);
  void take_feeders(Flight& flight);
  void weigh();
  void limit_starts();
  void limit_waits();
  void add(std::size_t begin, std::size_t end, std::int64_t bytes);
  void sort_events();
  [[nodiscard]] bool touches(OpId op, ValueId value) const;

  const Graph& graph_;
  const Costs& costs_;
  std::vector<OpId> base_;
  std::vector<std::int64_t> base_ns_;
  std::vector<std::uint32_t> lands_;  // by place: the flight for which base_[i] waits, or kNone
  std::vector<Flight> flights_;
  std::vector<Event> events_;
  bool sorted_ = false;
  std::vector<std::int64_t> bytes_;
  std::vector<std::int64_t> clock_ns_;
  std::vector<std::int64_t> communicator_ns_;
};

}  // namespace reprise::detail
