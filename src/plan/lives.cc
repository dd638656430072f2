#include "reprise/lives.h"

#include <limits>
#include <utility>

#include "check.h"
#include "plan/liveness.h"

namespace reprise {
namespace {

class Chronicle {
 public:
  explicit Chronicle(const Graph& graph) : graph_(graph), current_(graph.num_values(), kNone) {
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      if (graph.residence(value_id(i)) != Residence::kPlanned) begin({.value = value_id(i)});
    }
  }

  void compute(OpId op, bool in_place, std::size_t at) {
    for (const ValueId v : graph_.outputs(op)) {
      const ValueId old = in_place ? graph_.overwrites(v) : kNoValue;
      if (old != kNoValue) end(old, at);
      if (current_[index(v)] == kNone) {
        begin({.value = v, .first = at, .took_over = old});
      } else {
        lives_.push_back({.value = v, .first = at, .last = at, .second_copy = true});
      }
    }
  }

  void free(ValueId value, std::size_t at) { end(value, at); }
  void store(ValueId /*value*/, std::size_t /*at*/) {}
  void fetch(ValueId value, std::size_t at) { begin({.value = value, .first = at}); }

  Lives take() && { return std::move(lives_); }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  void end(ValueId value, std::size_t at) {
    REPRISE_CHECK(current_[index(value)] != kNone);
    lives_[std::exchange(current_[index(value)], kNone)].last = at;
  }
  void begin(const Life& life) {
    current_[index(life.value)] = lives_.size();
    lives_.push_back(life);
  }

  const Graph& graph_;
  std::vector<std::size_t> current_;  // by value: the life it is in, in lives_
  Lives lives_;
};

// Which copies are going on, and who waits for them.
class CopyChronicle {
 public:
  explicit CopyChronicle(const Graph& graph)
      : graph_(graph), storing_(graph.num_values(), 0), coming_(graph.num_values(), 0) {}

  void store(ValueId value, std::size_t /*at*/) { storing_[index(value)] = 1; }
  void fetch(ValueId value, std::size_t /*at*/) { coming_[index(value)] = 1; }
  void compute(OpId op, bool in_place, std::size_t at) {
    for (const ValueId v : graph_.inputs(op)) wait_for_fetch(v, at);
    for (const ValueId v : graph_.outputs(op)) {
      if (in_place && graph_.overwrites(v) != kNoValue) wait_for_store(graph_.overwrites(v), at);
    }
  }
  void free(ValueId value, std::size_t at) {
    wait_for_fetch(value, at);
    wait_for_store(value, at);
  }

  std::vector<CopyWait> take() && { return std::move(waits_); }

 private:
  void wait_for_fetch(ValueId value, std::size_t at) {
    if (std::exchange(coming_[index(value)], 0) != 0) waits_.push_back({at, value, true});
  }
  void wait_for_store(ValueId value, std::size_t at) {
    if (std::exchange(storing_[index(value)], 0) != 0) waits_.push_back({at, value, false});
  }

  const Graph& graph_;
  std::vector<std::uint8_t> storing_;  // by value: stored, and nothing has waited for it
  std::vector<std::uint8_t> coming_;   // by value: fetched, and nothing has waited for it
  std::vector<CopyWait> waits_;
};

// Tells a chronicle of every action, and takes what it has written.
template <typename Chronicler>
auto written(Chronicler chronicle, const Plan& plan) {
  for (std::size_t at = 0; at < plan.actions.size(); ++at) {
    const Action action = plan.actions[at];
    switch (action.kind()) {
      case Action::Kind::kCompute:
        chronicle.compute(action.op(), /*in_place=*/false, at);
        break;
      case Action::Kind::kComputeInPlace:
        chronicle.compute(action.op(), /*in_place=*/true, at);
        break;
      case Action::Kind::kFree:
        chronicle.free(action.value(), at);
        break;
      case Action::Kind::kStore:
        chronicle.store(action.value(), at);
        break;
      case Action::Kind::kFetch:
        chronicle.fetch(action.value(), at);
        break;
    }
  }
  return std::move(chronicle).take();
}

}  // namespace

Lives lives(const Graph& graph, const Plan& plan) { return written(Chronicle(graph), plan); }

std::vector<CopyWait> copy_waits(const Graph& graph, const Plan& plan) { return written(CopyChronicle(graph), plan); }

std::vector<HostLife> host_lives(const Graph& graph, const Plan& plan) {
  std::vector<HostLife> lives;
  std::vector<std::size_t> life_of(graph.num_values(), 0);
  std::vector<std::optional<std::size_t>> fetched(graph.num_values());
  for (std::size_t at = 0; at < plan.actions.size(); ++at) {
    const Action action = plan.actions[at];
    if (action.fetches()) fetched[index(action.value())] = at;
    if (!action.stores()) continue;
    life_of[index(action.value())] = lives.size();
    lives.push_back({.value = action.value(), .first = at});
  }
  for (const CopyWait& wait : copy_waits(graph, plan)) {
    const auto& last_fetch = fetched[index(wait.value)];
    if (wait.for_fetch && wait.action > *last_fetch) lives[life_of[index(wait.value)]].last = wait.action;
  }
  return lives;
}

Plan with_shortest_lives(const Graph& graph, std::span<const OpId> runs) { return detail::place_frees(graph, runs); }

}  // namespace reprise
