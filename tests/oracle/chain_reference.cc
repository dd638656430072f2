#include "oracle/chain_reference.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace reprise::test {
namespace {

using Kind = ChainAction::Kind;

std::int64_t sum(const Sizes& d, std::size_t begin, std::size_t end) {
  std::int64_t total = 0;
  for (std::size_t k = begin; k < end; ++k) total += d[k];
  return total;
}

std::int64_t most(const Sizes& d, std::size_t begin, std::size_t end) {
  std::int64_t best = 0;
  for (std::size_t k = begin; k < end; ++k) best = std::max(best, d[k]);
  return best;
}

std::vector<std::size_t> with_ends(const Checkpoints& c, std::size_t end) {
  std::vector<std::size_t> all(c.begin(), c.end());
  all.insert(all.begin(), 0);
  all.push_back(end);
  return all;
}

std::int64_t segment(const Sizes& d, std::size_t i, std::size_t j) { return sum(d, i + 1, j + 1) + most(d, i, j); }

// Blocks of memory with names. It throws if a block is taken twice or is missing, and keeps the peak.
class Memory {
 public:
  void take(char what, std::size_t k, std::int64_t bytes) {
    if (!held_.emplace(std::pair(what, k), bytes).second) fail("taken twice", what, k);
    peak_ = std::max(peak_, now_ += bytes);
  }
  void free(char what, std::size_t k) {
    need(what, k);
    now_ -= held_[{what, k}];
    held_.erase({what, k});
  }
  void need(char what, std::size_t k) const {
    if (!has(what, k)) fail("missing", what, k);
  }
  void pass(std::int64_t bytes) { peak_ = std::max(peak_, now_ + bytes); }
  [[nodiscard]] bool has(char what, std::size_t k) const { return held_.contains({what, k}); }
  [[nodiscard]] std::size_t count(char what) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(held_, [&](const auto& block) { return block.first.first == what; }));
  }
  [[nodiscard]] bool empty() const { return held_.empty(); }
  [[nodiscard]] std::int64_t peak() const { return peak_; }

 private:
  [[noreturn]] static void fail(const char* why, char what, std::size_t k) {
    throw std::logic_error(std::string(why) + ": " + what + std::to_string(k));
  }
  std::map<std::pair<char, std::size_t>, std::int64_t> held_;
  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

// The names of the blocks: y is an output, x a saved state, g a gradient.
class LiveRun {
 public:
  LiveRun(const LiveInstance& chain, const Checkpoints& c) : chain_(chain), ends_(with_ends(c, chain.layers.size())) {}

  std::int64_t run() {
    memory_.take('y', 0, chain_.input_bytes);
    for (std::size_t k = 1; k <= count(); ++k) {
      memory_.need('y', k - 1);
      memory_.take('y', k, at(k).bytes);
      memory_.pass(at(k).forward_workspace_bytes);
      if (!std::ranges::binary_search(ends_, k - 1)) memory_.free('y', k - 1);
    }
    memory_.take('g', count(), at(count()).gradient_bytes);
    for (std::size_t t = ends_.size() - 1; t-- > 0;) segment(ends_[t], ends_[t + 1]);
    memory_.free('y', 0);
    if (memory_.has('g', 0)) memory_.free('g', 0);
    if (!memory_.empty()) throw std::logic_error("left over");
    return memory_.peak();
  }

 private:
  [[nodiscard]] std::size_t count() const { return chain_.layers.size(); }
  [[nodiscard]] const LiveLayer& at(std::size_t k) const { return chain_.layers[k - 1]; }

  void again(std::size_t k) {
    memory_.need('y', k - 1);
    memory_.take('y', k, at(k).bytes);
    memory_.take('x', k, at(k).saved_bytes);
    memory_.pass(at(k).forward_workspace_bytes);
  }

  void segment(std::size_t i, std::size_t j) {
    const LiveLayer& last = at(j);
    if (!last.reads_output || last.saved_bytes > 0) memory_.free('y', j);
    for (std::size_t k = i + 1; k < j; ++k) again(k);
    if (last.saved_bytes > 0) {
      again(j);
      if (!last.reads_output) memory_.free('y', j);
    }
    for (std::size_t k = j; k > i; --k) backward(k, i);
  }

  void backward(std::size_t k, std::size_t i) {
    memory_.need('y', k - 1);
    memory_.need('g', k);
    if (at(k).reads_output) memory_.need('y', k);
    if (at(k).saved_bytes > 0) memory_.need('x', k);
    if (k > 1) memory_.take('g', k - 1, at(k - 1).gradient_bytes);
    if (k == 1 && chain_.input_gradient) memory_.take('g', 0, chain_.input_bytes);
    memory_.pass(at(k).backward_workspace_bytes);
    memory_.free('g', k);
    if (memory_.has('x', k)) memory_.free('x', k);
    if (memory_.has('y', k)) memory_.free('y', k);
    if (k - 1 > i && !at(k - 1).reads_output) memory_.free('y', k - 1);
  }

  const LiveInstance& chain_;
  std::vector<std::size_t> ends_;
  Memory memory_;
};

}  // namespace

Sizes random_sizes(Random& random, int kind, std::uint32_t layers) {
  Sizes d(layers + 1);
  const std::int64_t equal = random.between(1, 9);
  for (std::int64_t& bytes : d) {
    if (kind == 0) bytes = random.between(0, 3);
    if (kind == 1) bytes = random.between(0, 1000000);
    if (kind == 2 || kind == 3 || kind == 5) bytes = random.between(0, 30);
    if (kind == 4) bytes = std::int64_t{1} << random.between(0, 20);
    if (kind == 6) bytes = equal;
  }
  if (kind == 2) std::ranges::sort(d);
  if (kind == 3) std::sort(d.rbegin(), d.rend());
  if (kind == 5) d[0] = 0;
  return d;
}

std::int64_t static_cost(const Sizes& d, const Checkpoints& c, Buffer buffer) {
  const std::vector<std::size_t> ends = with_ends(c, d.size());
  std::int64_t largest = 0;
  std::int64_t bought = 0;
  for (std::size_t t = 0; t + 1 < ends.size(); ++t) {
    const std::size_t l = ends[t];
    const std::size_t r = ends[t + 1];
    const bool gradient = buffer == Buffer::kAlways || (buffer == Buffer::kLiteral && r > l + 1);
    largest = std::max(largest, sum(d, l + 1, r) + (gradient ? most(d, l, r) : 0));
  }
  for (const std::uint32_t k : c) bought += d[k];
  return bought + largest;
}

std::int64_t dynamic_cost(const Sizes& d, const Checkpoints& c, std::int64_t base) {
  const std::vector<std::size_t> ends = with_ends(c, d.size() - 1);
  std::int64_t held = 0;
  std::int64_t peak = 0;
  for (std::size_t t = 0; t + 1 < ends.size(); ++t) {
    held += d[ends[t]];
    peak = std::max(peak, held + segment(d, ends[t], ends[t + 1]));
  }
  return std::max(peak, held + base);
}

Sizes quadratic_peaks(const Sizes& d, std::int64_t base) {
  Sizes peaks(d.size(), base);
  for (std::size_t i = d.size() - 1; i-- > 0;) {
    std::optional<std::int64_t> best;
    std::int64_t inside = 0;
    std::int64_t gradient = 0;
    for (std::size_t j = i + 1; j < d.size(); ++j) {
      inside += d[j];
      gradient = std::max(gradient, d[j - 1]);
      const std::int64_t peak = std::max(peaks[j], inside + gradient);
      if (!best || peak < *best) best = peak;
    }
    peaks[i] = d[i] + *best;
  }
  return peaks;
}

LiveInstance random_live(Random& random, std::uint32_t layers, bool growing) {
  LiveInstance chain{.input_bytes = random.between(0, 9), .input_gradient = random.chance(50)};
  for (std::uint32_t k = 0; k < layers; ++k) {
    LiveLayer layer{.bytes = random.between(0, 9), .reads_output = random.chance(40)};
    if (random.chance(30)) layer.saved_bytes = random.between(1, 9);
    layer.gradient_bytes = growing ? layer.bytes + random.between(0, 2) : random.between(0, 9);
    if (!growing && random.chance(50)) layer.forward_workspace_bytes = random.between(0, 20);
    if (random.chance(50)) layer.backward_workspace_bytes = random.between(0, 9);
    chain.layers.push_back(layer);
  }
  return chain;
}

std::int64_t run_live(const LiveInstance& chain, const Checkpoints& checkpoints) {
  return LiveRun(chain, checkpoints).run();
}

// The names of the blocks: a is an output, s what is saved for backward (it contains the output), g a gradient, and k
// marks a stored input and has no bytes.
ScheduleRun run_schedule(std::span<const RotorStage> stages, std::int64_t input_bytes,
                         std::span<const ChainAction> actions) {
  Memory memory;
  ScheduleRun run;
  const std::size_t count = stages.size();
  std::size_t gradient = count;
  memory.take('a', 0, input_bytes);
  memory.take('g', count, count == 0 ? 0 : stages[count - 1].gradient_bytes);
  for (const auto& [kind, k] : actions) {
    const RotorStage& stage = stages[k - 1];
    const bool inside_saved = !memory.has('a', k - 1);
    if (inside_saved) memory.need('s', k - 1);
    if (kind == Kind::kBackward) {
      memory.need('s', k);
      memory.need('g', k);
      memory.pass(stage.backward_overhead_bytes);
      memory.free('s', k);
      memory.free('g', k);
      if (!inside_saved) memory.free('a', k - 1);
      if (memory.has('k', k - 1)) memory.free('k', k - 1);
      gradient = k - 1;
      memory.take('g', gradient, k == 1 ? 0 : stages[k - 2].gradient_bytes);
      run.time_ns += stage.backward_ns;
      continue;
    }
    if (kind == Kind::kForwardSaveAll) memory.take('s', k, stage.saved_bytes);
    if (kind != Kind::kForwardSaveAll) memory.take('a', k, stage.output_bytes);
    memory.pass(stage.forward_overhead_bytes);
    if (kind == Kind::kForwardDrop) memory.free('a', k - 1);
    if (kind == Kind::kForwardKeepInput && !memory.has('k', k - 1)) memory.take('k', k - 1, 0);
    run.time_ns += stage.forward_ns;
    run.advances += kind == Kind::kForwardSaveAll ? 0 : 1;
    run.most_stored = std::max(run.most_stored, static_cast<std::uint32_t>(memory.count('k')));
  }
  if (gradient != 0) throw std::logic_error("not reversed");
  memory.free('g', 0);
  if (count == 0) memory.free('a', 0);
  if (!memory.empty()) throw std::logic_error("left over");
  run.peak_bytes = memory.peak();
  return run;
}

std::vector<std::vector<ChainAction>> persistent_schedules(std::uint32_t first, std::uint32_t last) {
  if (first == last) return {{{Kind::kForwardSaveAll, first}, {Kind::kBackward, first}}};
  std::vector<std::vector<ChainAction>> all;
  for (const auto& rest : persistent_schedules(first + 1, last)) {
    all.push_back({{Kind::kForwardSaveAll, first}});
    all.back().insert(all.back().end(), rest.begin(), rest.end());
    all.back().push_back({Kind::kBackward, first});
  }
  for (std::uint32_t cut = first + 1; cut <= last; ++cut) {
    for (const auto& right : persistent_schedules(cut, last)) {
      for (const auto& left : persistent_schedules(first, cut - 1)) {
        all.push_back({{Kind::kForwardKeepInput, first}});
        for (std::uint32_t k = first + 1; k < cut; ++k) all.back().push_back({Kind::kForwardDrop, k});
        all.back().insert(all.back().end(), right.begin(), right.end());
        all.back().insert(all.back().end(), left.begin(), left.end());
      }
    }
  }
  return all;
}

}  // namespace reprise::test
