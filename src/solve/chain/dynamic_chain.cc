#include "solve/chain/dynamic_chain.h"

#include "solve/chain/chain_search.h"

namespace reprise::detail {
namespace {

// U(i, b): a running sum over (i, b] and the maximum over [i, b - 1].
class GradientSegment {
 public:
  explicit GradientSegment(ByteSpan sizes) : sizes_(sizes), gradients_(sizes), right_(layers()) {}

  [[nodiscard]] std::uint32_t layers() const { return static_cast<std::uint32_t>(sizes_.size() - 1); }
  [[nodiscard]] std::int64_t checkpoint_bytes(std::uint32_t i) const { return sizes_[i]; }
  void enter(std::uint32_t i) {
    sum_ += sizes_[i + 1];
    gradients_.extend_left(i);
  }
  [[nodiscard]] std::int64_t bytes(std::uint32_t /*i*/, std::uint32_t b) {
    while (right_ > b) sum_ -= sizes_[right_--];
    return sum_ + gradients_.maximum_until(b - 1);
  }

 private:
  ByteSpan sizes_;
  WindowMaximum gradients_;
  std::uint32_t right_;
  std::int64_t sum_ = 0;
};

// Both ends of every segment, from left to right, y_0 and y_n included.
Checkpoints with_ends(ByteSpan sizes, const Checkpoints& checkpoints) {
  Checkpoints all = {0};
  all.insert(all.end(), checkpoints.begin(), checkpoints.end());
  if (sizes.size() > 1) all.push_back(static_cast<std::uint32_t>(sizes.size() - 1));
  return all;
}

std::int64_t segment_bytes(ByteSpan sizes, std::uint32_t i, std::uint32_t j) {
  std::int64_t sum = 0;
  std::int64_t gradient = 0;
  for (std::uint32_t k = i; k < j; ++k) {
    sum += sizes[k + 1];
    gradient = std::max(gradient, sizes[k]);
  }
  return sum + gradient;
}

}  // namespace

ChainAnswer least_peak(ByteSpan sizes, std::int64_t base_bytes) {
  return least_chain_peak(GradientSegment(sizes), base_bytes);
}

std::int64_t dynamic_peak(ByteSpan sizes, const Checkpoints& checkpoints, std::int64_t base_bytes) {
  const Checkpoints all = with_ends(sizes, checkpoints);
  std::int64_t peak = base_bytes;
  for (std::size_t t = all.size() - 1; t-- > 0;) {
    peak = sizes[all[t]] + std::max(peak, segment_bytes(sizes, all[t], all[t + 1]));
  }
  return peak;
}

}  // namespace reprise::detail
