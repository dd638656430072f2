// Partial sequences, as (overhead, cached bytes) per set; see overhead_search.h. On the chain a -> b -> c (times 1, 2,
// 3; sizes 1, 2, 4) without a budget, the set {a, b} is reached by {a} < {a,b} with partial (0, 3) and directly with
// (1, 2): neither beats the other, both stay.
//
// Time O(pairs * partials per set), 24 bytes a partial.
#include <algorithm>
#include <limits>

#include "check.h"
#include "solve/lower_sets/overhead_search.h"

namespace reprise::detail {
namespace {

struct Partial {
  std::int64_t overhead;  // negated where the most is sought
  std::int64_t cached_bytes;
  std::uint32_t parent;  // index of a partial
  SetId set;
};

bool earlier(const Partial& a, const Partial& b) {
  return a.overhead != b.overhead ? a.overhead < b.overhead : a.cached_bytes < b.cached_bytes;
}

enum class Outcome : std::uint8_t { kFound, kNone, kStopped, kTooMany };

class PartialSearch {
 public:
  PartialSearch(const Transitions& transitions, const OverheadOptions& options)
      : context_(transitions, options), family_(context_.family), options_(options), bounds_(context_.bounds) {}

  OverheadResult run() {
    OverheadResult result;
    if (!context_.stop() && bounds_.feasible()) {
      const Outcome outcome = aim_until_found();
      result.too_many_partials = outcome == Outcome::kTooMany;
      if (outcome == Outcome::kFound) result.sequence = read_back();
    }
    result.stopped = context_.stopped;
    result.partials = partials_made_;
    return result;
  }

 private:
  Outcome aim_until_found() {
    for (Aim aim(bounds_, options_);; aim.raise(smallest_dropped_)) {
      const Outcome outcome = search(aim.total());
      if (outcome != Outcome::kNone) return outcome;
    }
  }

  // All partials that may end at or below the aim, set by set.
  Outcome search(std::int64_t aim) {
    aim_ = aim;
    smallest_dropped_ = kUnreachable;
    partials_.assign(1, {.overhead = 0, .cached_bytes = 0, .parent = 0, .set = 0});
    begin_.assign(family_.size() + 1, 1);
    begin_[0] = 0;
    alive_.assign((family_.size() + 63) / 64, 0);
    alive_[0] = 1;
    for (SetId to = 1; to < family_.size(); ++to) {
      if (context_.stop()) return Outcome::kStopped;
      begin_[to] = partials_.size();
      if (bounds_.useful(to)) gather(to);
      keep_best();
      begin_[to + 1] = partials_.size();
      if (begin_[to + 1] > begin_[to]) alive_[to / 64] |= std::uint64_t{1} << (to % 64);
      if (partials_.size() > options_.max_partials) return Outcome::kTooMany;
    }
    return begin_.back() > begin_[family_.whole()] ? Outcome::kFound : Outcome::kNone;
  }

  void gather(SetId to) {
    const auto skip = [&](std::size_t word) { return bounds_.beyond_budget(word, to); };
    context_.transitions.for_each_part(to, alive_, skip, [&](const Part& part) {
      part.for_each([&](SetId from) {
        const std::int64_t most = bounds_.most_cached(from, to, part.cached_bytes);
        const std::int64_t overhead = bounds_.overhead(from, to, part.cached_time);
        for (std::size_t i = begin_[from]; i < begin_[from + 1]; ++i) {
          if (partials_[i].cached_bytes <= most) extend(i, to, overhead, part.cached_bytes);
        }
      });
    });
  }

  void extend(std::size_t i, SetId to, std::int64_t overhead, std::int64_t cached_bytes) {
    const Partial partial{.overhead = partials_[i].overhead + overhead,
                          .cached_bytes = partials_[i].cached_bytes + cached_bytes,
                          .parent = static_cast<std::uint32_t>(i),
                          .set = to};
    if (partial.overhead + bounds_.rest(to) > aim_) {
      smallest_dropped_ = std::min(smallest_dropped_, partial.overhead + bounds_.rest(to));
      return;
    }
    fresh_.push_back(partial);
    if (fresh_.size() >= kFreshLimit && fresh_.size() >= 2 * thinned_) thin();
  }

  // Sorts the fresh partials and drops what is beaten.
  void thin() {
    std::ranges::sort(fresh_, earlier);
    std::size_t left = 0;
    for (const Partial& partial : fresh_) {
      if (left == 0 || !beats(fresh_[left - 1], partial)) fresh_[left++] = partial;
    }
    fresh_.resize(left);
    thinned_ = left;
  }

  // `left` has no more overhead than `partial`.
  [[nodiscard]] bool beats(const Partial& left, const Partial& partial) const {
    if (options_.prunings.dominance) return left.cached_bytes <= partial.cached_bytes;
    return left.overhead == partial.overhead;
  }

  void keep_best() {
    thin();
    REPRISE_CHECK(partials_.size() + fresh_.size() < std::numeric_limits<std::uint32_t>::max());
    partials_.insert(partials_.end(), fresh_.begin(), fresh_.end());
    partials_made_ += fresh_.size();
    fresh_.clear();
    thinned_ = 0;
  }

  [[nodiscard]] SetSequence read_back() const {
    SetSequence sequence;
    for (std::size_t i = begin_[family_.whole()]; partials_[i].set != 0; i = partials_[i].parent) {
      sequence.push_back(partials_[i].set);
    }
    std::ranges::reverse(sequence);
    return sequence;
  }

  static constexpr std::size_t kFreshLimit = 4096;

  SearchContext context_;
  const LowerSetFamily& family_;
  const OverheadOptions& options_;
  const SequenceBounds& bounds_;
  std::int64_t aim_ = 0;
  std::int64_t smallest_dropped_ = 0;
  std::vector<Partial> partials_;
  std::vector<std::size_t> begin_;  // of the partials of a set
  std::vector<std::uint64_t> alive_;
  std::vector<Partial> fresh_;  // of the set at hand
  std::size_t thinned_ = 0;     // size of fresh_ when it was last thinned
  std::size_t partials_made_ = 0;
};

}  // namespace

OverheadResult partial_search(const Transitions& transitions, const OverheadOptions& options) {
  return PartialSearch(transitions, options).run();
}

}  // namespace reprise::detail
