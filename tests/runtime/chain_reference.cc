#include "chain_reference.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "runtime/program/slices/cut.h"

namespace reprise::test {
namespace {

constexpr std::int64_t kLeastShare = 8;  // a chain goes on along values of at least 1 / kLeastShare of its largest

// Who makes and who reads each value.
struct Links {
  explicit Links(const Program& program) : maker(program.values.size(), kNoOp), readers(program.values.size()) {
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      for (const ValueId value : makes(program.ops[i])) maker[index(value)] = op_id(i);
      for (const ValueId value : reads(program.ops[i])) readers[index(value)].push_back(op_id(i));
    }
    outside.resize(program.values.size(), 0);
    for (const auto* uses : {&program.forward_outputs, &program.gradients}) {
      for (const ValueId value : values_of(*uses)) outside[index(value)] = 1;
    }
    for (const ValueId value : program.new_contents) outside[index(value)] = 1;
    for (std::size_t i = 0; i < program.values.size(); ++i) {
      if (program.values[i].held) outside[i] = 1;
    }
  }

  std::vector<OpId> maker;
  std::vector<std::vector<OpId>> readers;
  std::vector<std::uint8_t> outside;  // needed whole after the step, or by the caller
};

class Growth {
 public:
  Growth(const Program& program, const Links& links, Sums sums, const std::set<OpId>& never, std::int64_t units)
      : program_(program), links_(links), sums_(sums), never_(never), units_(units) {}

  std::optional<Chain> from(OpId beginning) {
    if (!can_join(beginning)) return std::nullopt;
    look_at_sizes(beginning);
    members_ = {beginning};
    std::deque<OpId> next = {beginning};
    while (!next.empty()) {
      for (const OpId neighbour : neighbours(next.front())) {
        if (!members_.insert(neighbour).second) continue;
        look_at_sizes(neighbour);
        next.push_back(neighbour);
      }
      next.pop_front();
    }
    while (leave()) continue;
    return chain();
  }

 private:
  [[nodiscard]] const ProgramOp& op(OpId id) const { return program_.ops[index(id)]; }
  [[nodiscard]] std::int64_t bytes(ValueId value) const { return program_.values[index(value)].bytes; }

  void look_at_sizes(OpId id) {
    for (const ValueId value : makes(op(id))) least_ = std::max(least_, bytes(value) / kLeastShare);
  }

  const std::optional<SliceRule>& rule(OpId id) {
    const auto [found, is_new] = rules_.try_emplace(id);
    if (!is_new) return found->second;
    found->second = slice_rule(op(id), units_, sums_);
    for (std::size_t i = 0; found->second && i < op(id).outputs.size(); ++i) {
      const auto& made = op(id).outputs[i];
      if (made && found->second->results[i] == Made::kSum) added_.insert(made->value);
    }
    return found->second;
  }
  bool can_join(OpId id) { return !never_.contains(id) && rule(id).has_value(); }

  [[nodiscard]] const Geometry* made_as(ValueId value) const {
    const OpId maker = links_.maker[index(value)];
    if (maker == kNoOp) return nullptr;
    for (const auto& use : op(maker).outputs) {
      if (use && use->value == value) return &use->geometry;
    }
    return nullptr;
  }

  // Whether the op reads the value slice by slice, wherever it reads it.
  bool follows(OpId reader, ValueId value) {
    const Geometry* made = made_as(value);
    const auto& cutting = rule(reader);
    if (made == nullptr || !cutting || added_.contains(value)) return false;
    const std::vector<SlicePart>& parts = cutting->arguments;
    const Call& call = *op(reader).call;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      for (const auto& use : call.arguments[i].tensors) {
        if (!use || use->value != value) continue;
        if (parts[i] == SlicePart::kWhole) return false;
        if (parts[i] == SlicePart::kShape) continue;
        const bool turned = parts[i] == SlicePart::kCutColumns;
        if (!follows_units(*made, turned ? transposed(use->geometry) : use->geometry, units_)) return false;
      }
    }
    return true;
  }

  std::vector<OpId> neighbours(OpId id) {
    std::vector<OpId> found;
    for (const ValueId made : makes(op(id))) {
      if (bytes(made) < least_) continue;
      for (const OpId reader : links_.readers[index(made)]) {
        if (can_join(reader) && follows(reader, made)) found.push_back(reader);
      }
    }
    for (const ValueId read : reads(op(id))) {
      const OpId maker = links_.maker[index(read)];
      if (maker != kNoOp && bytes(read) >= least_ && can_join(maker) && follows(id, read)) found.push_back(maker);
    }
    return found;
  }

  // Whether something needs the value whole.
  bool is_end(ValueId value) {
    if (links_.outside[index(value)] != 0 || added_.contains(value)) return true;
    return std::ranges::any_of(links_.readers[index(value)],
                               [&](OpId reader) { return !members_.contains(reader) || !follows(reader, value); });
  }
  [[nodiscard]] bool is_made_here(ValueId value) const { return members_.contains(links_.maker[index(value)]); }

  // One call leaves the chain: one that reads something of it whole, one that has nothing to gain, or one that would
  // have to wait for a call outside which waits for the chain. Returns whether there was one.
  bool leave() {
    for (const OpId id : members_) {
      if (!reads_whole(id) && gains(id)) continue;
      members_.erase(id);
      return true;
    }
    return leave_behind(Phase::kForward) || leave_behind(Phase::kBackward);
  }
  bool reads_whole(OpId id) {
    return std::ranges::any_of(reads(op(id)),
                               [&](ValueId value) { return is_made_here(value) && !follows(id, value); });
  }
  bool gains(OpId id) {
    const auto is_inside = [&](ValueId value) {
      return is_made_here(value) && !is_end(value) && bytes(value) >= least_;
    };
    return std::ranges::any_of(makes(op(id)), is_inside) || std::ranges::any_of(reads(op(id)), is_inside);
  }
  bool leave_behind(Phase phase) {
    std::set<OpId> waiting;  // ops outside that wait for the chain
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (program_.ops[i].phase != phase) continue;
      bool after_chain = false, after_waiting = false;
      for (const ValueId value : reads(program_.ops[i])) {
        const OpId maker = links_.maker[index(value)];
        if (maker == kNoOp || op(maker).phase != phase) continue;
        after_chain |= members_.contains(maker);
        after_waiting |= waiting.contains(maker);
      }
      if (!members_.contains(op_id(i))) {
        if (after_chain || after_waiting) waiting.insert(op_id(i));
      } else if (after_waiting) {
        members_.erase(op_id(i));
        return true;
      }
    }
    return false;
  }

  std::optional<Chain> chain() {
    Chain found{.units = units_, .ops = {members_.begin(), members_.end()}};
    for (const OpId id : members_) {
      for (const ValueId made : makes(op(id))) {
        if (added_.contains(made)) found.sums.insert(made);
        if (is_end(made)) {
          found.ends.insert(made);
        } else {
          found.inside.insert(made);
          found.inside_bytes += bytes(made);
        }
      }
    }
    return found.inside.empty() ? std::nullopt : std::optional(std::move(found));
  }

  const Program& program_;
  const Links& links_;
  Sums sums_;
  const std::set<OpId>& never_;
  std::int64_t units_;
  std::int64_t least_ = 1;
  std::set<OpId> members_;
  std::map<OpId, std::optional<SliceRule>> rules_;
  std::set<ValueId> added_;  // results that are sums over units
};

}  // namespace

std::optional<Chain> slowly_found_chain(const Program& program, Sums sums, const std::set<OpId>& never) {
  const Links links(program);
  std::optional<Chain> best;
  for (const auto [op, units] : chain_beginnings(program)) {
    auto found = Growth(program, links, sums, never, units).from(op);
    if (found && (!best || found->inside_bytes > best->inside_bytes)) best = std::move(found);
  }
  return best;
}

}  // namespace reprise::test
