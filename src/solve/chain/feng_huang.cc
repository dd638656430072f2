#include "solve/chain/feng_huang.h"

#include <algorithm>
#include <limits>

namespace reprise::detail {
namespace {

// Sums of d_(l+1) .. d_(r-1) for all 0 <= l < r <= n + 1, rising, each once.
std::vector<std::int64_t> interval_sums(ByteSpan sizes) {
  std::vector<std::int64_t> sums = {0};
  for (std::size_t l = 0; l < sizes.size(); ++l) {
    std::int64_t sum = 0;
    for (std::size_t k = l + 1; k < sizes.size(); ++k) sums.push_back(sum += sizes[k]);
  }
  std::ranges::sort(sums);
  sums.erase(std::unique(sums.begin(), sums.end()), sums.end());
  return sums;
}

// Shortest path 0 -> n + 1 over arcs with at most v inside. Tensors are in topological order.
class ArcSearch {
 public:
  explicit ArcSearch(ByteSpan sizes) : sizes_(sizes), length_(sizes.size() + 1), before_(sizes.size() + 1) {}

  std::int64_t shortest(std::int64_t v) {
    length_.assign(length_.size(), std::numeric_limits<std::int64_t>::max());
    length_[0] = 0;
    for (std::uint32_t u = 0; u < sizes_.size(); ++u) {
      std::int64_t inside = 0;
      for (std::uint32_t w = u + 1; w <= sizes_.size() && inside <= v; ++w) {
        const std::int64_t bytes = w < sizes_.size() ? sizes_[w] : 0;
        if (length_[u] + bytes < length_[w]) {
          length_[w] = length_[u] + bytes;
          before_[w] = u;
        }
        inside += bytes;
      }
    }
    return length_.back();
  }

  [[nodiscard]] Checkpoints path() const {
    Checkpoints checkpoints;
    for (std::uint32_t w = before_.back(); w != 0; w = before_[w]) checkpoints.push_back(w);
    std::ranges::reverse(checkpoints);
    return checkpoints;
  }

 private:
  ByteSpan sizes_;
  std::vector<std::int64_t> length_;
  std::vector<std::uint32_t> before_;
};

}  // namespace

ChainAnswer feng_huang(ByteSpan sizes) {
  ChainAnswer best{.peak_bytes = std::numeric_limits<std::int64_t>::max()};
  ArcSearch search(sizes);
  for (const std::int64_t v : interval_sums(sizes)) {
    if (v >= best.peak_bytes) break;
    const std::int64_t total = search.shortest(v) + v;
    if (total < best.peak_bytes) best = {total, search.path()};
  }
  return best;
}

}  // namespace reprise::detail
