#include "solve/chain/static_chain.h"

#include <algorithm>
#include <numeric>

namespace reprise::detail {
namespace {

// First-in, first-out indices of which only those that may still be the best of the window are held.
class WindowQueue {
 public:
  explicit WindowQueue(std::size_t size) : held_(size) {}

  void clear() { front_ = back_ = 0; }
  template <typename Worse>
  void push(std::uint32_t index, const Worse& worse_than_new) {
    while (back_ != front_ && worse_than_new(held_[back_ - 1])) --back_;
    held_[back_++] = index;
  }
  void drop_before(std::uint32_t index) {
    while (held_[front_] < index) ++front_;
  }
  [[nodiscard]] std::uint32_t best() const { return held_[front_]; }

 private:
  std::vector<std::uint32_t> held_;
  std::size_t front_ = 0;
  std::size_t back_ = 0;
};

class StaticChain {
 public:
  StaticChain(ByteSpan sizes, SegmentMemory memory)
      : sizes_(sizes),
        memory_(memory),
        key_(sizes.size()),
        last_(sizes.size()),
        keys_(sizes.size()),
        gradients_(sizes.size()) {}

  ChainAnswer run() {
    const std::int64_t largest = *std::ranges::max_element(sizes_);
    const std::int64_t least = memory_ == SegmentMemory::kRepaired ? largest : 0;
    std::int64_t most = std::accumulate(sizes_.begin(), sizes_.end(), largest);
    ChainAnswer best{.peak_bytes = 2 * most + 1};
    while (most >= least) {
      const std::int64_t bought = cheapest(most);
      Checkpoints checkpoints = chosen();
      const std::int64_t peak = static_peak(sizes_, checkpoints, memory_);
      if (peak < best.peak_bytes) best = {peak, std::move(checkpoints)};
      most = best.peak_bytes - bought - 1;
    }
    return best;
  }

 private:
  // T_v(n) for v = most; last_[i] is the right-most checkpoint in 1 .. i (0: none).
  std::int64_t cheapest(std::int64_t most) {
    keys_.clear();
    gradients_.clear();
    std::int64_t inside = 0;  // d_(lo+1) + .. + d_i
    std::int64_t paid = 0;    // T_v(i)
    std::uint32_t lo = 0;
    key_[0] = 0;
    keys_.push(0, [](std::uint32_t) { return false; });
    gradients_.push(0, [](std::uint32_t) { return false; });
    for (std::uint32_t i = 1; i < sizes_.size(); ++i) {
      key_[i] = paid + sizes_[i];
      keys_.push(i, [&](std::uint32_t j) { return key_[j] >= key_[i]; });
      gradients_.push(i, [&](std::uint32_t j) { return sizes_[j] <= sizes_[i]; });
      inside += sizes_[i];
      while (segment(lo, i, inside) > most) {
        inside -= sizes_[++lo];
        gradients_.drop_before(lo);
      }
      keys_.drop_before(lo);
      last_[i] = keys_.best();
      paid = key_[last_[i]];
    }
    return paid;
  }

  // s(lo, i + 1)
  [[nodiscard]] std::int64_t segment(std::uint32_t lo, std::uint32_t i, std::int64_t inside) const {
    if (memory_ == SegmentMemory::kChen) return inside;
    if (memory_ == SegmentMemory::kLiteral && lo == i) return 0;
    return inside + sizes_[gradients_.best()];
  }

  [[nodiscard]] Checkpoints chosen() const {
    Checkpoints checkpoints;
    for (std::size_t i = sizes_.size() - 1; i > 0 && last_[i] > 0; i = last_[i] - 1) checkpoints.push_back(last_[i]);
    std::ranges::reverse(checkpoints);
    return checkpoints;
  }

  ByteSpan sizes_;
  SegmentMemory memory_;
  std::vector<std::int64_t> key_;
  std::vector<std::uint32_t> last_;
  WindowQueue keys_;       // least key
  WindowQueue gradients_;  // largest size
};

}  // namespace

ChainAnswer least_static_peak(ByteSpan sizes, SegmentMemory memory) { return StaticChain(sizes, memory).run(); }

std::int64_t static_peak(ByteSpan sizes, const Checkpoints& checkpoints, SegmentMemory memory) {
  std::int64_t bought = 0;
  std::int64_t largest = 0;
  std::size_t left = 0;
  for (std::size_t t = 0; t <= checkpoints.size(); ++t) {
    const std::size_t right = t < checkpoints.size() ? checkpoints[t] : sizes.size();
    const ByteSpan inside = sizes.subspan(left + 1, right - left - 1);
    std::int64_t bytes = std::accumulate(inside.begin(), inside.end(), std::int64_t{0});
    const bool gradient = memory == SegmentMemory::kRepaired || (memory == SegmentMemory::kLiteral && !inside.empty());
    if (gradient) bytes += *std::ranges::max_element(sizes.subspan(left, right - left));
    largest = std::max(largest, bytes);
    if (right < sizes.size()) bought += sizes[right];
    left = right;
  }
  return bought + largest;
}

}  // namespace reprise::detail
