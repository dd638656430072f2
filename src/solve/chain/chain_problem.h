// A step as the chain planners see it: stages 1 .. n between single-node cuts, with what each costs.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "papers/cut_chain.h"
#include "papers/lower_sets.h"
#include "reprise/solve.h"
#include "solve/chain/chain.h"
#include "solve/chain/live_chain.h"
#include "solve/chain/rotor.h"
#include "solve/problem.h"

namespace reprise::detail {

class ChainProblem {
 public:
  // `problem` must outlive the object.
  explicit ChainProblem(const Problem& problem);

  [[nodiscard]] std::uint32_t stages() const { return static_cast<std::uint32_t>(chain_.num_stages()); }
  [[nodiscard]] const CutChain& chain() const { return chain_; }
  [[nodiscard]] ByteSpan sizes() const { return sizes_; }  // d_0 = 0: inputs are there anyway; d_k: what ends stage k
  [[nodiscard]] std::span<const std::int64_t> times() const { return chain_.time; }
  [[nodiscard]] const std::vector<LiveLayer>& layers() const { return layers_; }
  [[nodiscard]] const std::vector<RotorStage>& rotor_stages() const { return rotor_stages_; }
  // The lower sets that end at a cut.
  [[nodiscard]] LowerSetFamily cut_sets() const;

  [[nodiscard]] Blocks blocks(const Checkpoints& checkpoints) const;
  [[nodiscard]] std::vector<OpId> runs(std::span<const ChainAction> actions) const;
  // What a checkpoint set costs by its planner's objective, whose peak is given.
  [[nodiscard]] Formula formula(const Checkpoints& checkpoints, std::int64_t peak_bytes) const;
  // Time of all stages that the schedule runs more than once.
  [[nodiscard]] std::int64_t rerun_time(std::span<const ChainAction> actions) const;
  // Notes the number of cuts, and says so in the message if the chain is a poor picture of the network. Stops the
  // solution and returns false if there are more stages than its planner takes.
  bool describe(Solution& solution, std::uint32_t most_stages = std::numeric_limits<std::uint32_t>::max()) const;

 private:
  void measure_stages();

  const Problem& problem_;
  CutChain chain_;
  std::vector<std::vector<OpId>> backward_;  // ops of each stage
  std::vector<std::int64_t> sizes_;
  std::vector<LiveLayer> layers_;
  std::vector<RotorStage> rotor_stages_;
};

}  // namespace reprise::detail
