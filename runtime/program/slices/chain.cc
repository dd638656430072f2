#include "runtime/program/slices/chain.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "runtime/program/slices/cut.h"

namespace reprise {
namespace {

constexpr std::int64_t kLeastShare = 8;  // a chain goes on along values of at least 1 / kLeastShare of its largest
constexpr std::size_t kBeginnings = 10;  // calls with the most bytes from which chains are grown
constexpr std::int64_t kFewestUnits = 2;

// Who makes and who reads each value.
struct Links {
  explicit Links(const Program& program)
      : maker(program.values.size(), kNoOp),
        made_as(program.values.size(), nullptr),
        readers(program.values.size()),
        outside(program.values.size(), 0) {
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      for (const ValueId value : made.emplace_back(makes(program.ops[i]))) maker[index(value)] = op_id(i);
      for (const ValueId value : read.emplace_back(reads(program.ops[i]))) readers[index(value)].push_back(op_id(i));
      for (const auto& use : program.ops[i].outputs) {
        if (use && made_as[index(use->value)] == nullptr) made_as[index(use->value)] = &use->geometry;
      }
    }
    for (const auto* uses : {&program.forward_outputs, &program.gradients}) {
      for (const ValueId value : values_of(*uses)) outside[index(value)] = 1;
    }
    for (const ValueId value : program.new_contents) outside[index(value)] = 1;
    for (std::size_t i = 0; i < program.values.size(); ++i) {
      if (program.values[i].held) outside[i] = 1;
    }
  }

  std::vector<std::vector<ValueId>> read, made;  // by op
  std::vector<OpId> maker;
  std::vector<const Geometry*> made_as;
  std::vector<std::vector<OpId>> readers;
  std::vector<std::uint8_t> outside;  // needed whole after the step, or by the caller
};

// How the calls of a program are cut into so many units. Each answer is worked out when it is first asked for.
class Cuts {
 public:
  Cuts(const Program& program, const Links& links, Sums sums, std::int64_t units)
      : program_(program), links_(links), sums_(sums), units_(units), rules_(program.ops.size()) {
    follows_.reserve(links.read.size());
    for (const auto& values : links.read) follows_.emplace_back(values.size());
  }

  [[nodiscard]] std::int64_t units() const { return units_; }
  [[nodiscard]] bool has_rule(OpId id) { return rule(id).has_value(); }

  // Whether the value is a sum over units.
  [[nodiscard]] bool is_sum(ValueId value) {
    const OpId maker = links_.maker[index(value)];
    if (maker == kNoOp || !has_rule(maker)) return false;
    const auto& outputs = program_.ops[index(maker)].outputs;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] && outputs[i]->value == value && rule(maker)->results[i] == Made::kSum) return true;
    }
    return false;
  }

  // Whether the op reads the value slice by slice, wherever it reads it. REQUIRES: it reads the value.
  [[nodiscard]] bool follows(OpId reader, ValueId value) {
    const std::vector<ValueId>& read = links_.read[index(reader)];
    const auto place = static_cast<std::size_t>(std::ranges::find(read, value) - read.begin());
    std::optional<bool>& known = follows_[index(reader)][place];
    if (!known) known = works_out_to_follow(reader, value);
    return *known;
  }

 private:
  const std::optional<SliceRule>& rule(OpId id) {
    std::optional<std::optional<SliceRule>>& known = rules_[index(id)];
    if (!known) known.emplace(slice_rule(program_.ops[index(id)], units_, sums_));
    return *known;
  }

  [[nodiscard]] bool works_out_to_follow(OpId reader, ValueId value) {
    const Geometry* made = links_.made_as[index(value)];
    const auto& cutting = rule(reader);
    if (made == nullptr || !cutting || is_sum(value)) return false;
    const std::vector<SlicePart>& parts = cutting->arguments;
    const Call& call = *program_.ops[index(reader)].call;
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

  const Program& program_;
  const Links& links_;
  Sums sums_;
  std::int64_t units_;
  std::vector<std::optional<std::optional<SliceRule>>> rules_;  // by op
  std::vector<std::vector<std::optional<bool>>> follows_;       // by op, and place among what it reads
};

// The ops from which others leave until a chain remains. Which leaves next is decided by the numbers of ops: first the
// lowest that is wrong by itself, and if there is none, the first that would have to run between two slices.
class Growth {
 public:
  Growth(const Program& program, const Links& links, Cuts& cuts, const std::set<OpId>& never)
      : program_(program), links_(links), cuts_(cuts), never_(never), is_member_(program.ops.size(), 0) {}

  // Returns whether the call can be cut.
  bool grow(OpId beginning) {
    if (!can_join(beginning)) return false;
    join(beginning);
    for (std::deque<OpId> next = {beginning}; !next.empty(); next.pop_front()) {
      for (const OpId neighbour : neighbours(next.front())) {
        if (is_member(neighbour)) continue;
        join(neighbour);
        next.push_back(neighbour);
      }
    }
    return true;
  }

  // Until nothing has to leave, or no more than so many bytes would be inside; returns whether more are. What is inside
  // only becomes less.
  bool shrink_above(std::int64_t bytes) {
    if (inside_bytes() <= bytes) return false;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) look_again(op_id(i));
    do {
      while (!wrong_.empty()) leave(*wrong_.begin());
      if (inside_bytes() <= bytes) return false;
    } while (leave_behind(Phase::kForward) || leave_behind(Phase::kBackward));
    return true;
  }

  [[nodiscard]] std::optional<Chain> chain() {
    Chain found{.units = cuts_.units()};
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (!is_member(op_id(i))) continue;
      found.ops.push_back(op_id(i));
      for (const ValueId made : links_.made[i]) {
        if (cuts_.is_sum(made)) found.sums.insert(made);
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

  // What the rest depends on.
  using State = std::pair<std::int64_t, std::vector<std::uint8_t>>;
  [[nodiscard]] State state() const { return {least_, is_member_}; }

 private:
  [[nodiscard]] std::int64_t bytes(ValueId value) const { return program_.values[index(value)].bytes; }
  [[nodiscard]] bool is_member(OpId id) const { return id != kNoOp && is_member_[index(id)] != 0; }
  [[nodiscard]] bool is_made_here(ValueId value) const { return is_member(links_.maker[index(value)]); }
  [[nodiscard]] bool can_join(OpId id) { return !never_.contains(id) && cuts_.has_rule(id); }

  void join(OpId id) {
    is_member_[index(id)] = 1;
    for (const ValueId value : links_.made[index(id)]) least_ = std::max(least_, bytes(value) / kLeastShare);
  }

  std::vector<OpId> neighbours(OpId id) {
    std::vector<OpId> found;
    for (const ValueId made : links_.made[index(id)]) {
      if (bytes(made) < least_) continue;
      for (const OpId reader : links_.readers[index(made)]) {
        if (can_join(reader) && cuts_.follows(reader, made)) found.push_back(reader);
      }
    }
    for (const ValueId read : links_.read[index(id)]) {
      const OpId maker = links_.maker[index(read)];
      if (maker != kNoOp && bytes(read) >= least_ && can_join(maker) && cuts_.follows(id, read)) found.push_back(maker);
    }
    return found;
  }

  // Whether something needs the value whole.
  [[nodiscard]] bool is_end(ValueId value) {
    if (links_.outside[index(value)] != 0 || cuts_.is_sum(value)) return true;
    return std::ranges::any_of(links_.readers[index(value)],
                               [&](OpId reader) { return !is_member(reader) || !cuts_.follows(reader, value); });
  }
  [[nodiscard]] std::int64_t inside_bytes() {
    std::int64_t inside = 0;
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (!is_member(op_id(i))) continue;
      for (const ValueId made : links_.made[i]) inside += is_end(made) ? 0 : bytes(made);
    }
    return inside;
  }

  [[nodiscard]] bool reads_whole(OpId id) {
    return std::ranges::any_of(links_.read[index(id)],
                               [&](ValueId value) { return is_made_here(value) && !cuts_.follows(id, value); });
  }
  // Whether it reads or makes something that is not there whole anyway.
  [[nodiscard]] bool gains(OpId id) {
    const auto is_inside = [&](ValueId value) {
      return bytes(value) >= least_ && is_made_here(value) && !is_end(value);
    };
    return std::ranges::any_of(links_.made[index(id)], is_inside) ||
           std::ranges::any_of(links_.read[index(id)], is_inside);
  }
  void look_again(OpId id) {
    if (!is_member(id)) return;
    if (reads_whole(id) || !gains(id)) {
      wrong_.insert(id);
    } else {
      wrong_.erase(id);
    }
  }

  void leave(OpId id) {
    is_member_[index(id)] = 0;
    wrong_.erase(id);
    for (const ValueId made : links_.made[index(id)]) {
      for (const OpId reader : links_.readers[index(made)]) look_again(reader);
    }
    for (const ValueId read : links_.read[index(id)]) {
      if (!is_made_here(read)) continue;
      look_again(links_.maker[index(read)]);
      for (const OpId reader : links_.readers[index(read)]) look_again(reader);
    }
  }

  // Lets the first call of a phase leave that would have to wait for a call outside which waits for the chain. Returns
  // whether there was one.
  bool leave_behind(Phase phase) {
    std::vector<std::uint8_t> waits(program_.ops.size(), 0);  // ops outside that wait for the chain
    for (std::size_t i = 0; i < program_.ops.size(); ++i) {
      if (program_.ops[i].phase != phase) continue;
      bool after_chain = false, after_waiting = false;
      for (const ValueId value : links_.read[i]) {
        const OpId maker = links_.maker[index(value)];
        if (maker == kNoOp || program_.ops[index(maker)].phase != phase) continue;
        after_chain |= is_member(maker);
        after_waiting |= waits[index(maker)] != 0;
      }
      if (!is_member(op_id(i))) {
        waits[i] = after_chain || after_waiting ? 1 : 0;
      } else if (after_waiting) {
        leave(op_id(i));
        return true;
      }
    }
    return false;
  }

  const Program& program_;
  const Links& links_;
  Cuts& cuts_;
  const std::set<OpId>& never_;
  std::int64_t least_ = 1;
  std::vector<std::uint8_t> is_member_;  // by op
  std::set<OpId> wrong_;                 // members that cannot stay
};

// Into how many units the results of a call may be cut: the rows of all dimensions but the last, or the first alone.
std::vector<std::int64_t> possible_units(const ProgramOp& op) {
  std::set<std::int64_t> found;
  if (op.kind == ProgramOp::Kind::kCall && !op.outputs.empty() && op.outputs.front()) {
    std::int64_t product = 1;
    const auto& sizes = op.outputs.front()->geometry.sizes;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      product *= sizes[i];
      if (i == 0 || i + 2 == sizes.size()) found.insert(product);
    }
  }
  std::vector<std::int64_t> units(found.rbegin(), found.rend());
  std::erase_if(units, [](std::int64_t count) { return count < kFewestUnits; });
  return units;
}

// The bytes of what a call reads and makes.
std::int64_t operand_bytes(const Program& program, const ProgramOp& op) {
  std::int64_t bytes = 0;
  for (const ValueId value : reads(op)) bytes += program.values[index(value)].bytes;
  for (const ValueId value : makes(op)) bytes += program.values[index(value)].bytes;
  return bytes;
}

// The same, less a result that may lie over an operand.
std::int64_t least_operand_bytes(const Program& program, const ProgramOp& op) {
  const std::vector<ValueId> read = reads(op);
  std::int64_t over = 0;
  for (const ValueId made : makes(op)) {
    const std::int64_t bytes = program.values[index(made)].bytes;
    const auto fits = [&](ValueId value) { return program.values[index(value)].bytes == bytes; };
    if (std::ranges::any_of(read, fits)) over = std::max(over, bytes);
  }
  return operand_bytes(program, op) - over;
}

}  // namespace

std::vector<ChainBeginning> chain_beginnings(const Program& program) {
  std::vector<std::pair<std::int64_t, OpId>> by_bytes;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != ProgramOp::Kind::kCall) continue;
    by_bytes.emplace_back(-operand_bytes(program, program.ops[i]), op_id(i));
  }
  std::ranges::sort(by_bytes);
  by_bytes.resize(std::min(kBeginnings, by_bytes.size()));
  std::vector<ChainBeginning> found;
  for (const auto& [bytes, op] : by_bytes) {
    for (const std::int64_t units : possible_units(program.ops[index(op)])) found.push_back({op, units});
  }
  return found;
}

std::optional<Chain> find_chain(const Program& program, Sums sums, const std::set<OpId>& never) {
  const Links links(program);
  std::map<std::int64_t, Cuts> by_units;
  std::set<std::pair<std::int64_t, Growth::State>> seen;  // with the units: what beginnings have grown to
  std::optional<Chain> best;
  for (const auto [op, units] : chain_beginnings(program)) {
    Growth growth(program, links, by_units.try_emplace(units, program, links, sums, units).first->second, never);
    if (!growth.grow(op) || !seen.emplace(units, growth.state()).second) continue;
    if (!growth.shrink_above(best ? best->inside_bytes : -1)) continue;
    if (auto found = growth.chain()) best = std::move(found);
  }
  return best;
}

bool has_the_largest_call(const Program& program, const Chain& chain) {
  const std::set<OpId> members(chain.ops.begin(), chain.ops.end());
  std::int64_t inside = 0, outside = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != ProgramOp::Kind::kCall) continue;
    const ProgramOp& op = program.ops[i];
    if (members.contains(op_id(i))) {
      inside = std::max(inside, operand_bytes(program, op));
    } else {
      outside = std::max(outside, least_operand_bytes(program, op));
    }
  }
  return inside > outside;
}

}  // namespace reprise
