// Replays the plan with a map of what is occupied, by offset, and nothing clever: O(log of what is live) per address.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reprise/place.h"

namespace reprise {
namespace {

class Occupancy {
 public:
  Occupancy(const Graph& graph, const Costs& costs, const Plan& plan, const Placement& placement)
      : graph_(graph), costs_(costs), plan_(plan), placement_(placement) {}

  std::optional<std::string> replay() {
    if (placement_.alignment_bytes <= 0 || placement_.alignment_bytes > kMaxAlignment) {
      return "the alignment is " + std::to_string(placement_.alignment_bytes) + " bytes; it must be from 1 to 2^30";
    }
    for (const Address& address : placement_.addresses) {
      if (!unused_.emplace(std::pair(address.action, address.value), address.offset).second) {
        return text(address.action, address.value) + " has two addresses";
      }
    }
    find_held();
    for (std::size_t at = 0; at < plan_.actions.size(); ++at) {
      const std::string wrong = take(at);
      if (!wrong.empty()) return wrong;
    }
    if (unused_.empty() && highest_sum_ == placement_.load_bytes) return std::nullopt;
    if (unused_.empty()) {
      return "the load is said to be " + std::to_string(placement_.load_bytes) + " bytes, but up to " +
             std::to_string(highest_sum_) + " are live at once";
    }
    const auto& [action, value] = unused_.begin()->first;
    return text(action, value) + " has an address, but the plan asks for no memory in the arena there";
  }

 private:
  using Key = std::pair<std::size_t, ValueId>;  // action and output
  static constexpr std::int64_t kMaxAlignment = std::int64_t{1} << 30;

  [[nodiscard]] std::string text(std::size_t action, ValueId value) const {
    const std::string what = value == kNoValue ? "the workspace" : "value " + std::to_string(index(value));
    return "action " + std::to_string(action) + ": " + what;
  }

  // Outputs that are made while the value is live already.
  [[nodiscard]] std::set<Key> second_copies() const {
    std::set<Key> copies;
    std::set<ValueId> live;
    for (std::size_t at = 0; at < plan_.actions.size(); ++at) {
      const Action action = plan_.actions[at];
      if (action.frees()) live.erase(action.value());
      if (action.fetches()) live.insert(action.value());
      if (!action.computes()) continue;
      for (const ValueId v : graph_.outputs(action.op())) {
        if (action.in_place()) live.erase(graph_.overwrites(v));
        if (!live.insert(v).second) copies.emplace(at, v);
      }
    }
    return copies;
  }

  // Outputs in memory that the caller holds sooner or later. Found by following versions backwards: from the end of the
  // plan, each value is either on its way into held memory or not.
  void find_held() {
    const std::set<Key> copies = second_copies();
    std::set<ValueId> will_be_held;
    for (std::size_t at = plan_.actions.size(); at-- > 0;) {
      const Action action = plan_.actions[at];
      if (action.frees()) will_be_held.erase(action.value());
      if (action.fetches() && will_be_held.erase(action.value()) != 0) {
        held_.emplace(at, action.value());
      }
      if (!action.computes()) continue;
      for (const ValueId v : graph_.outputs(action.op())) {
        if (copies.contains({at, v}) || (will_be_held.erase(v) == 0 && !graph_.held(v))) continue;
        held_.emplace(at, v);
        const bool in_place = action.in_place();
        if (in_place && graph_.overwrites(v) != kNoValue) will_be_held.insert(graph_.overwrites(v));
      }
    }
  }

  // What is wrong with the action, or "".
  std::string take(std::size_t at) {
    const Action action = plan_.actions[at];
    switch (action.kind()) {
      case Action::Kind::kCompute:
        return run(at, action.op(), /*in_place=*/false);
      case Action::Kind::kComputeInPlace:
        return run(at, action.op(), /*in_place=*/true);
      case Action::Kind::kFree:
        release(action.value());
        return "";
      case Action::Kind::kStore:
        return "";
      case Action::Kind::kFetch:
        return fetch(at, action.value());
    }
    return "is of an unknown kind";
  }

  std::string fetch(std::size_t at, ValueId v) {
    live_.insert(v);
    if (costs_.value_bytes[index(v)] == 0 || held_.contains({at, v})) return "";
    std::string wrong = occupy(at, v, costs_.value_bytes[index(v)]);
    if (wrong.empty()) offset_of_[v] = last_offset_;
    return wrong;
  }

  std::string run(std::size_t at, OpId op, bool in_place) {
    const bool by_caller = op == graph_.caller_op();
    std::vector<std::int64_t> until_its_end;  // offsets of what is gone when the run is over
    for (const ValueId v : graph_.outputs(op)) {
      const ValueId old = in_place ? graph_.overwrites(v) : kNoValue;
      const bool second_copy = live_.contains(v);
      const bool outside = by_caller || (held_.contains({at, v}) && !second_copy);
      if (old != kNoValue) {
        move(old, v);
      } else if (costs_.value_bytes[index(v)] > 0 && !outside) {
        std::string wrong = occupy(at, v, costs_.value_bytes[index(v)]);
        if (!wrong.empty()) return wrong;
        const std::int64_t offset = last_offset_;
        if (second_copy) {
          until_its_end.push_back(offset);
        } else {
          offset_of_[v] = offset;
        }
      }
      live_.insert(v);
    }
    if (costs_.workspace_bytes[index(op)] > 0 && !by_caller) {
      std::string wrong = occupy(at, kNoValue, costs_.workspace_bytes[index(op)]);
      if (!wrong.empty()) return wrong;
      until_its_end.push_back(last_offset_);
    }
    for (const std::int64_t offset : until_its_end) give_back(offset);
    return "";
  }

  std::string occupy(std::size_t at, ValueId value, std::int64_t bytes) {
    const auto found = unused_.find({at, value});
    if (found == unused_.end())
      return text(at, value) + " needs " + std::to_string(bytes) + " bytes and has no address";
    const std::int64_t offset = last_offset_ = found->second;
    unused_.erase(found);
    const std::string where = text(at, value) + " at " + std::to_string(offset);
    if (offset % placement_.alignment_bytes != 0) {
      return where + " is not at a multiple of " + std::to_string(placement_.alignment_bytes) + " bytes";
    }
    if (offset < 0 || bytes > placement_.arena_bytes || offset > placement_.arena_bytes - bytes) {
      return where + " with " + std::to_string(bytes) + " bytes is not inside the arena of " +
             std::to_string(placement_.arena_bytes) + " bytes";
    }
    const auto above = taken_.lower_bound(offset);
    if (above != taken_.end() && above->first < offset + bytes) return where + overlaps(above->second);
    if (above != taken_.begin() && std::prev(above)->second.end > offset)
      return where + overlaps(std::prev(above)->second);
    taken_[offset] = {.end = offset + bytes, .action = at, .value = value};
    sum_ += rounded(bytes);
    highest_sum_ = std::max(highest_sum_, sum_);
    return "";
  }

  void give_back(std::int64_t offset) {
    const auto found = taken_.find(offset);
    sum_ -= rounded(found->second.end - offset);
    taken_.erase(found);
  }

  [[nodiscard]] std::int64_t rounded(std::int64_t bytes) const {
    return (bytes + placement_.alignment_bytes - 1) / placement_.alignment_bytes * placement_.alignment_bytes;
  }

  void move(ValueId from, ValueId to) {
    live_.erase(from);
    const auto found = offset_of_.find(from);
    if (found == offset_of_.end()) return;
    const std::int64_t offset = found->second;
    offset_of_.erase(found);
    offset_of_[to] = offset;
  }

  void release(ValueId value) {
    live_.erase(value);
    const auto found = offset_of_.find(value);
    if (found == offset_of_.end()) return;
    give_back(found->second);
    offset_of_.erase(found);
  }

  struct Taken {
    std::int64_t end;
    std::size_t action;
    ValueId value;
  };
  [[nodiscard]] std::string overlaps(const Taken& other) const {
    return " overlaps what is live there: " + text(other.action, other.value);
  }

  const Graph& graph_;
  const Costs& costs_;
  const Plan& plan_;
  const Placement& placement_;
  std::map<Key, std::int64_t> unused_;  // addresses that no request has used
  std::set<Key> held_;
  std::set<ValueId> live_;                     // made by the plan
  std::map<ValueId, std::int64_t> offset_of_;  // of live values in the arena
  std::map<std::int64_t, Taken> taken_;        // by offset
  std::int64_t last_offset_ = 0;
  std::int64_t sum_ = 0;  // of what is taken, in rounded sizes
  std::int64_t highest_sum_ = 0;
};

}  // namespace

std::optional<std::string> validate_addresses(const Graph& graph, const Costs& costs, const Plan& plan,
                                              const Placement& placement) {
  check_costs(graph, costs);
  return Occupancy(graph, costs, plan, placement).replay();
}

}  // namespace reprise
