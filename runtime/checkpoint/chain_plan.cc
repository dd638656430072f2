#include "runtime/checkpoint/chain_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "reprise/error.h"

namespace reprise {
namespace {

constexpr std::int64_t kTimeUnits = 1000;  // into which the forward pass is divided

[[nodiscard]] std::int64_t kept(const Stage& stage) { return stage.output_bytes + stage.saved_bytes; }

// U and H of every part.
class Parts {
 public:
  Parts(const std::vector<Stage>& stages, std::int64_t random_state_bytes)
      : stages_(stages), random_state_(random_state_bytes), gradients_from_(stages.size() + 1, 0) {
    for (std::size_t k = stages.size(); k-- > 0;) {
      gradients_from_[k] = gradients_from_[k + 1] + stages[k].gradient_bytes;
    }
  }

  [[nodiscard]] std::size_t stages() const { return stages_.size(); }
  [[nodiscard]] std::int64_t output() const { return stages_.back().output_bytes; }

  [[nodiscard]] std::int64_t held(std::size_t first, std::size_t end, bool checkpoint) const {
    return checkpoint ? state(first, end) + stages_[end - 1].output_bytes : kept(stages_[first]);
  }
  // At the loss the gradient of the output joins what is held.
  [[nodiscard]] std::int64_t peak(std::size_t first, std::size_t end, bool checkpoint) const {
    const std::int64_t at_loss = end == stages() ? held(first, end, checkpoint) + output() : 0;
    return std::max(at_loss, checkpoint ? checkpoint_peak(first, end) : plain_peak(first));
  }

 private:
  [[nodiscard]] std::int64_t state(std::size_t first, std::size_t end) const {
    std::int64_t total = random_state_;
    for (std::size_t k = first; k < end; ++k) total += stages_[k].state_bytes;
    return total;
  }

  [[nodiscard]] std::int64_t plain_peak(std::size_t k) const {
    const Stage& stage = stages_[k];
    const bool callers = k + 1 == stages();  // the output that the caller holds is the one that was saved
    const std::int64_t own = stage.saved_bytes + (stage.reads_output && !callers ? stage.output_bytes : 0);
    const std::int64_t backward = output() + own + stage.output_bytes + stage.backward_bytes + gradients_from_[k + 1];
    return std::max(kept(stage) + stage.forward_bytes, backward);
  }

  // In backward, buffers are held twice: as saved, and as they were before. The gradient of the checkpoint's output
  // stays to the end, beside the gradient that goes from stage to stage.
  [[nodiscard]] std::int64_t checkpoint_peak(std::size_t first, std::size_t end) const {
    const std::int64_t copied = state(first, end);
    const std::int64_t beside = output() + 2 * copied - random_state_ + stages_[end - 1].output_bytes;
    std::int64_t peak = 0;
    std::int64_t before = 0;  // kept by stages first .. k - 1
    for (std::size_t k = first; k < end; ++k) {
      const Stage& stage = stages_[k];
      const std::int64_t run = kept(stage) + stage.forward_bytes;
      const std::int64_t input = k > first ? stages_[k - 1].output_bytes : 0;
      const std::int64_t own = stage.saved_bytes + (stage.reads_output ? stage.output_bytes : 0);
      const std::int64_t arriving = k + 1 < end ? stage.output_bytes : 0;
      peak = std::max({peak, copied + input + run, beside + before + run + gradients_from_[end],
                       beside + before + own + arriving + stage.backward_bytes + gradients_from_[k + 1]});
      before += kept(stage);
    }
    return peak;
  }

  const std::vector<Stage>& stages_;
  std::int64_t random_state_;
  std::vector<std::int64_t> gradients_from_;
};

// fn(end, checkpoint) for every part that begins at `first`.
template <typename Visit>
void each_part(std::size_t first, std::size_t stages, const Visit& visit) {
  visit(first + 1, false);
  for (std::size_t end = first + 1; end <= stages; ++end) visit(end, true);
}

// T of every stage.
[[nodiscard]] std::vector<std::int64_t> smallest_budgets(const Parts& parts) {
  std::vector<std::int64_t> smallest(parts.stages() + 1, std::numeric_limits<std::int64_t>::max());
  smallest.back() = parts.output();
  for (std::size_t first = parts.stages(); first-- > 0;) {
    each_part(first, parts.stages(), [&](std::size_t end, bool checkpoint) {
      const std::int64_t rest = parts.held(first, end, checkpoint) + smallest[end];
      smallest[first] = std::min(smallest[first], std::max(parts.peak(first, end, checkpoint), rest));
    });
  }
  return smallest;
}

struct Partial {
  std::int64_t held = 0;
  std::int64_t time = 0;
  std::size_t from_stage = 0;
  std::size_t from_partial = 0;
  bool checkpoint = false;
};

void drop_beaten(std::vector<Partial>& partials) {
  std::stable_sort(partials.begin(), partials.end(), [](const Partial& a, const Partial& b) {
    return a.time != b.time ? a.time < b.time : a.held < b.held;
  });
  std::int64_t least_held = std::numeric_limits<std::int64_t>::max();
  std::erase_if(partials, [&](const Partial& partial) {
    if (partial.held >= least_held) return true;
    least_held = partial.held;
    return false;
  });
}

[[nodiscard]] std::vector<std::int64_t> times_until(const std::vector<Stage>& stages) {
  std::int64_t total = 1;
  for (const Stage& stage : stages) total += stage.forward_ns;
  std::vector<std::int64_t> until = {0};
  for (const Stage& stage : stages) until.push_back(until.back() + stage.forward_ns * kTimeUnits / total + 1);
  return until;
}

// The partials of all stages; the first of the last stage is the least recomputation.
[[nodiscard]] std::vector<std::vector<Partial>> search(const std::vector<Stage>& stages, const Parts& parts,
                                                       const std::vector<std::int64_t>& smallest, std::int64_t budget) {
  const std::vector<std::int64_t> until = times_until(stages);
  std::vector<std::vector<Partial>> partials(stages.size() + 1);
  partials[0].push_back({});
  for (std::size_t first = 0; first < stages.size(); ++first) {
    drop_beaten(partials[first]);
    each_part(first, stages.size(), [&](std::size_t end, bool checkpoint) {
      const std::int64_t held = parts.held(first, end, checkpoint);
      const std::int64_t needed = std::max(parts.peak(first, end, checkpoint), held + smallest[end]);
      const std::int64_t time = checkpoint ? until[end] - until[first] : 0;
      for (std::size_t i = 0; i < partials[first].size(); ++i) {
        const Partial& partial = partials[first][i];
        if (partial.held + needed > budget) continue;
        partials[end].push_back({partial.held + held, partial.time + time, first, i, checkpoint});
      }
    });
  }
  drop_beaten(partials.back());
  return partials;
}

[[nodiscard]] std::vector<ChainPlan::Part> trace(const std::vector<std::vector<Partial>>& partials) {
  std::vector<ChainPlan::Part> parts;
  std::size_t end = partials.size() - 1;
  std::size_t i = 0;
  while (end > 0) {
    const Partial& partial = partials[end][i];
    parts.push_back({static_cast<std::int64_t>(end - partial.from_stage), partial.checkpoint});
    end = partial.from_stage;
    i = partial.from_partial;
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

void count_layers(const std::vector<Stage>& stages, std::vector<ChainPlan::Part>& parts) {
  std::size_t k = 0;
  for (ChainPlan::Part& part : parts) {
    const std::size_t end = k + static_cast<std::size_t>(part.layers);
    part.layers = 0;
    for (; k < end; ++k) part.layers += stages[k].layers;
  }
}

}  // namespace

std::int64_t peak_bound(const std::vector<Stage>& stages, const std::vector<ChainPlan::Part>& parts,
                        std::int64_t random_state_bytes) {
  const Parts costs(stages, random_state_bytes);
  std::int64_t held = 0;
  std::int64_t peak = 0;
  std::size_t first = 0;
  for (const ChainPlan::Part& part : parts) {
    const std::size_t end = first + static_cast<std::size_t>(part.layers);
    peak = std::max(peak, held + costs.peak(first, end, part.checkpoint));
    held += costs.held(first, end, part.checkpoint);
    first = end;
  }
  return peak;
}

ChainPlan plan_chain(const std::vector<Stage>& stages, std::int64_t random_state_bytes, std::int64_t budget_bytes) {
  const Parts parts(stages, random_state_bytes);
  const std::vector<std::int64_t> smallest = smallest_budgets(parts);
  if (smallest[0] > budget_bytes) {
    throw InputError("no plan keeps the chain inside " + std::to_string(budget_bytes) +
                     " bytes: the smallest budget is " + std::to_string(smallest[0]));
  }
  ChainPlan plan{.parts = trace(search(stages, parts, smallest, budget_bytes))};
  plan.peak_bytes = peak_bound(stages, plan.parts, random_state_bytes);
  count_layers(stages, plan.parts);
  return plan;
}

}  // namespace reprise
