// simulate() and timeline(), thousands of times on one graph: keeps its memory between runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reprise/simulate.h"
#include "simulate/clocks.h"

namespace reprise::detail {

class Simulator {
 public:
  static constexpr std::int64_t kTooLong = Clocks::kTooLong;

  // The graph and the costs must outlive it.
  Simulator(const Graph& graph, const Costs& costs);
  [[nodiscard]] Simulation run(const Plan& plan);
  [[nodiscard]] Timeline timeline(const Plan& plan);

 private:
  [[nodiscard]] std::int64_t host_peak_bytes(const Plan& plan) const;
  [[nodiscard]] bool needs_clocks(const Plan& plan) const;
  void take_from(const Clocks& clocks, const Plan& plan, Simulation& total) const;
  template <typename Observe>
  Simulation walk(std::span<const Action> actions, const Observe& observe);

  struct OpCost {
    std::int64_t time_ns;          // on the device; 0 of a start
    std::int64_t transient_bytes;  // outputs and workspace, run into fresh memory
    std::int64_t output_bytes;
    std::int64_t in_place_bytes;  // the part of output_bytes that an in-place run does not need
    std::uint32_t outputs_begin;
    std::uint32_t outputs_end;
  };
  const Graph& graph_;
  const Costs& costs_;
  std::vector<OpCost> ops_;
  std::vector<ValueId> outputs_;
  std::vector<std::int64_t> bytes_;
  std::vector<ValueId> overwrites_;
  std::vector<std::uint8_t> live_at_start_;
  std::int64_t start_bytes_ = 0;
  // Scratch of one run.
  std::vector<std::uint8_t> live_;
  std::vector<std::uint8_t> done_;
};

}  // namespace reprise::detail
