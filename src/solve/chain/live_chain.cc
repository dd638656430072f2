#include "solve/chain/live_chain.h"

#include <algorithm>
#include <limits>

#include "solve/chain/chain_search.h"

namespace reprise::detail {
namespace {

// The chain with its running sums; tensor 0 is the input.
class LiveChain {
 public:
  LiveChain(std::span<const LiveLayer> layers, std::int64_t input_bytes, bool input_gradient)
      : layers_(layers), input_bytes_(input_bytes), until_(layers.size() + 1), backward_(layers.size() + 1) {
    std::int64_t input_of_backward = input_gradient ? input_bytes : 0;
    for (std::uint32_t k = 1; k <= count(); ++k) {
      const LiveLayer& at = layer(k);
      until_[k] = until_[k - 1] + at.bytes + at.saved_bytes;
      backward_[k] = until_[k - 1] + at.saved_bytes + (at.reads_output ? at.bytes : 0) + at.gradient_bytes +
                     input_of_backward + at.backward_workspace_bytes;
      input_of_backward = at.gradient_bytes;
    }
  }

  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(layers_.size()); }
  [[nodiscard]] const LiveLayer& layer(std::uint32_t k) const { return layers_[k - 1]; }
  [[nodiscard]] std::int64_t size(std::uint32_t k) const { return k == 0 ? input_bytes_ : layer(k).bytes; }
  [[nodiscard]] std::int64_t base() const {
    return count() == 0 ? input_bytes_ : layers_.back().bytes + layers_.back().gradient_bytes;
  }
  // X_k
  [[nodiscard]] std::int64_t until(std::uint32_t k) const { return until_[k]; }
  // X_(k-1) + x_k + o_k d_k + g_k + g_(k-1) + wb_k, for all k; entry 0 is unused.
  [[nodiscard]] ByteSpan backward() const { return backward_; }
  // X_j + g_j if the segment's last layer runs again, else 0; without the workspace.
  [[nodiscard]] std::int64_t again(std::uint32_t j) const {
    return layer(j).saved_bytes > 0 ? until_[j] + layer(j).gradient_bytes : 0;
  }
  [[nodiscard]] bool grows_with_segment() const {
    return std::ranges::all_of(
        layers_, [](const LiveLayer& at) { return at.forward_workspace_bytes == 0 && at.gradient_bytes >= at.bytes; });
  }

 private:
  std::span<const LiveLayer> layers_;
  std::int64_t input_bytes_;
  std::vector<std::int64_t> until_;
  std::vector<std::int64_t> backward_;
};

// U(i, j) where it grows with the segment.
class LiveSegment {
 public:
  explicit LiveSegment(const LiveChain& chain) : chain_(chain), backward_(chain.backward()) {}

  [[nodiscard]] std::uint32_t layers() const { return chain_.count(); }
  [[nodiscard]] std::int64_t checkpoint_bytes(std::uint32_t i) const { return chain_.size(i); }
  void enter(std::uint32_t i) { backward_.extend_left(i + 1); }
  [[nodiscard]] std::int64_t bytes(std::uint32_t i, std::uint32_t b) {
    return std::max(backward_.maximum_until(b), chain_.again(b)) - chain_.until(i);
  }

 private:
  const LiveChain& chain_;
  WindowMaximum backward_;
};

// U(i, j) for fixed i while j grows by one, all terms.
class GrowingSegment {
 public:
  GrowingSegment(const LiveChain& chain, std::uint32_t i) : chain_(chain), i_(i), j_(i) {}

  std::int64_t extend() {
    if (j_ > i_) recompute_ = std::max(recompute_, chain_.until(j_) + chain_.layer(j_).forward_workspace_bytes);
    ++j_;
    const LiveLayer& last = chain_.layer(j_);
    const std::int64_t input = j_ - 1 > i_ ? chain_.size(j_ - 1) : 0;
    forward_ = std::max(forward_, input + last.bytes + last.forward_workspace_bytes);
    backward_ = std::max(backward_, chain_.backward()[j_]);
    std::int64_t most = backward_;
    if (recompute_ > 0) {
      const std::int64_t held = last.reads_output && last.saved_bytes == 0 ? last.bytes : 0;
      most = std::max(most, recompute_ + last.gradient_bytes + held);
    }
    if (last.saved_bytes > 0) most = std::max(most, chain_.again(j_) + last.forward_workspace_bytes);
    return std::max(forward_, most - chain_.until(i_));
  }

  // No longer segment needs less.
  [[nodiscard]] std::int64_t lower_bound() const { return std::max(forward_, backward_ - chain_.until(i_)); }

 private:
  const LiveChain& chain_;
  std::uint32_t i_;
  std::uint32_t j_;
  std::int64_t forward_ = 0;
  std::int64_t recompute_ = 0;  // 0: nothing inside yet, or nothing of any size
  std::int64_t backward_ = 0;
};

ChainAnswer least_by_recurrence(const LiveChain& chain) {
  const std::uint32_t n = chain.count();
  std::vector<std::int64_t> peak(n + 1, chain.base());
  std::vector<std::uint32_t> next(n + 1, n);
  for (std::uint32_t i = n; i-- > 0;) {
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    GrowingSegment segment(chain, i);
    for (std::uint32_t j = i + 1; j <= n && segment.lower_bound() < best; ++j) {
      const std::int64_t bytes = std::max(peak[j], segment.extend());
      if (bytes >= best) continue;
      best = bytes;
      next[i] = j;
    }
    peak[i] = chain.size(i) + best;
  }
  ChainAnswer answer{.peak_bytes = peak[0]};
  for (std::uint32_t i = next[0]; i < n; i = next[i]) answer.checkpoints.push_back(i);
  return answer;
}

}  // namespace

ChainAnswer least_live_peak(std::span<const LiveLayer> layers, std::int64_t input_bytes, bool input_gradient) {
  const LiveChain chain(layers, input_bytes, input_gradient);
  if (chain.grows_with_segment()) return least_chain_peak(LiveSegment(chain), chain.base());
  return least_by_recurrence(chain);
}

std::int64_t live_peak(std::span<const LiveLayer> layers, std::int64_t input_bytes, bool input_gradient,
                       const Checkpoints& checkpoints) {
  const LiveChain chain(layers, input_bytes, input_gradient);
  std::int64_t peak = chain.base();
  std::uint32_t right = chain.count();
  for (std::size_t t = checkpoints.size() + 1; t-- > 0 && right > 0;) {
    const std::uint32_t left = t == 0 ? 0 : checkpoints[t - 1];
    GrowingSegment segment(chain, left);
    std::int64_t bytes = 0;
    for (std::uint32_t j = left; j < right; ++j) bytes = segment.extend();
    peak = chain.size(left) + std::max(peak, bytes);
    right = left;
  }
  return peak;
}

}  // namespace reprise::detail
