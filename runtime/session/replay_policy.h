// Decides when a session's steps run as CUDA graphs, and keeps these within the budget.
//
// The whole pool of the graphs and everything that is allocated beside it must fit into the budget. A model that is
// called with inputs of many shapes has a session for each, and one budget holds one pool: the shape that was used most
// lately has it. Without a budget, two shapes have one each.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/session/caller.h"
#include "runtime/session/options.h"
#include "runtime/session/pace.h"
#include "runtime/session/recent_use.h"
#include "runtime/session/replay.h"

namespace reprise {

// How steps run as graphs.
struct ReplayUse {
  bool recorded = false;  // the next step may be a replay
  bool pending = false;   // a forward whose backward has not run holds their memory
  int recordings = 0;
  std::string refusal{};  // why there are no graphs
  std::int64_t pool_bytes = 0;
  std::int64_t hidden_bytes = 0;  // of the pool: in use at every replay, but not counted by any allocator
};

class ReplayPolicy {
 public:
  // The situation in which a step is called.
  struct Situation {
    std::span<const at::Tensor> inputs;
    const Costs& costs;
    const Caller& caller;
    std::int64_t base_bytes;      // bytes that the budget covers and that no allocator counts
    std::int64_t reserved_bytes;  // the part of the budget to leave free
  };
  // For each input, whether it belongs to the model and is therefore read where it lies.
  using OwnedInputs = std::function<std::vector<bool>(std::span<const at::Tensor>)>;

  ReplayPolicy(std::shared_ptr<const Program> program, std::shared_ptr<const SessionOptions> options,
               OwnedInputs owned_inputs);
  ~ReplayPolicy();
  ReplayPolicy(const ReplayPolicy&) = delete;
  ReplayPolicy& operator=(const ReplayPolicy&) = delete;

  // The graphs that run the step now, if there are any. If CUDA graphs were asked for but are not possible, throws
  // InfeasibleBudget or Unsupported and changes nothing.
  [[nodiscard]] std::shared_ptr<Replay> ready(const Situation& now);
  // The peak of a step as graphs, with everything that is allocated now. REQUIRES: there are graphs.
  [[nodiscard]] std::int64_t peak_bytes(const Situation& now) const;
  // Notes that a step has run without graphs.
  void note_plain_step() { ++steps_before_; }
  [[nodiscard]] Pace& pace() { return pace_; }

  // Frees the graphs and their pool.
  void release();
  // Frees them because the options have changed.
  void forget();
  // Frees the graphs of other sessions of the same model that there is no room for beside this one, unless their memory
  // is in use.
  void make_rivals_give_way();

  [[nodiscard]] const std::shared_ptr<Replay>& replay() const { return replay_; }
  [[nodiscard]] ReplayUse use() const;

 private:
  [[nodiscard]] bool is_asked_for() const { return options_->cuda_graphs == CudaGraphs::kOn; }
  [[nodiscard]] bool takes(std::span<const at::Tensor> inputs) const;
  [[nodiscard]] bool is_current(const Situation& now) const;
  [[nodiscard]] std::int64_t over_bytes(const Situation& now) const;
  [[nodiscard]] bool may_record();
  void record(const Situation& now);
  [[nodiscard]] std::string misplaced(const Situation& now) const;
  [[nodiscard]] ReplayInputs sort(std::span<const at::Tensor> inputs) const;
  [[nodiscard]] std::optional<std::int64_t> goal(const Situation& now) const;
  [[nodiscard]] bool try_to_record(const Situation& now, const ReplayInputs& inputs, FoundPlan found);
  void refuse(const std::string& why, std::optional<std::int64_t> smallest_budget_bytes = std::nullopt);
  void fail() const;
  void give_way();
  [[nodiscard]] std::vector<ReplayPolicy*> rivals() const;
  [[nodiscard]] bool is_used_more_than_rivals() const;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<const SessionOptions> options_;
  OwnedInputs owned_inputs_;
  Graph graph_;  // random calls run once
  std::int64_t resident_bytes_;
  Pace pace_;
  RecentUse use_;
  std::shared_ptr<Replay> replay_;
  std::optional<std::int64_t> recorded_for_;  // this budget
  int steps_before_ = 0;                      // without graphs
  int recordings_ = 0;
  std::int64_t cleared_bytes_ = 0;           // by recording: workspaces that other threads will take again
  std::string refusal_;                      // why graphs are not used,
  std::optional<std::int64_t> refused_for_;  // with this budget
  std::optional<std::int64_t> refused_smallest_;
};

}  // namespace reprise
