// Labels (overhead, cached bytes) per set; see overhead_search.h. On the chain a -> b -> c (times 1, 2, 3; sizes 1, 2,
// 4) without a budget, the set {a, b} is reached by {a} < {a,b} with label (0, 3) and directly with (1, 2): neither
// beats the other, both stay.
//
// Time O(pairs * labels per set), 24 bytes a label.
#include <algorithm>
#include <limits>

#include "check.h"
#include "solve/lower_sets/overhead_search.h"

namespace reprise::detail {
namespace {

struct Label {
  std::int64_t overhead;  // negated where the most is sought
  std::int64_t cached_bytes;
  std::uint32_t parent;  // index of a label
  SetId set;
};

bool earlier(const Label& a, const Label& b) {
  return a.overhead != b.overhead ? a.overhead < b.overhead : a.cached_bytes < b.cached_bytes;
}

enum class Outcome : std::uint8_t { kFound, kNone, kStopped, kTooMany };

class LabelSearch {
 public:
  LabelSearch(const Transitions& transitions, const OverheadOptions& options)
      : context_(transitions, options), family_(context_.family), options_(options), bounds_(context_.bounds) {}

  OverheadResult run() {
    OverheadResult result;
    if (!context_.stop() && bounds_.feasible()) {
      const Outcome outcome = aim_until_found();
      result.too_many_labels = outcome == Outcome::kTooMany;
      if (outcome == Outcome::kFound) result.sequence = trace();
    }
    result.stopped = context_.stopped;
    result.labels = labels_made_;
    return result;
  }

 private:
  Outcome aim_until_found() {
    for (Aim aim(bounds_, options_);; aim.raise(smallest_dropped_)) {
      const Outcome outcome = search(aim.total());
      if (outcome != Outcome::kNone) return outcome;
    }
  }

  // All labels that may end at or below the aim, set by set.
  Outcome search(std::int64_t aim) {
    aim_ = aim;
    smallest_dropped_ = kUnreachable;
    labels_.assign(1, {.overhead = 0, .cached_bytes = 0, .parent = 0, .set = 0});
    begin_.assign(family_.size() + 1, 1);
    begin_[0] = 0;
    alive_.assign((family_.size() + 63) / 64, 0);
    alive_[0] = 1;
    for (SetId to = 1; to < family_.size(); ++to) {
      if (context_.stop()) return Outcome::kStopped;
      begin_[to] = labels_.size();
      if (bounds_.useful(to)) gather(to);
      keep_best();
      begin_[to + 1] = labels_.size();
      if (begin_[to + 1] > begin_[to]) alive_[to / 64] |= std::uint64_t{1} << (to % 64);
      if (labels_.size() > options_.max_labels) return Outcome::kTooMany;
    }
    return begin_.back() > begin_[family_.whole()] ? Outcome::kFound : Outcome::kNone;
  }

  void gather(SetId to) {
    const auto skip = [&](std::size_t word) { return bounds_.beyond_budget(word, to); };
    context_.transitions.for_each_part(to, alive_, skip, [&](const Part& part) {
      part.for_each([&](SetId from) {
        const std::int64_t most = bounds_.most_cached(from, to, part.cached_bytes);
        const std::int64_t overhead = bounds_.step_overhead(from, to, part.cached_time);
        for (std::size_t i = begin_[from]; i < begin_[from + 1]; ++i) {
          if (labels_[i].cached_bytes <= most) extend(i, to, overhead, part.cached_bytes);
        }
      });
    });
  }

  void extend(std::size_t i, SetId to, std::int64_t overhead, std::int64_t cached_bytes) {
    const Label label{.overhead = labels_[i].overhead + overhead,
                      .cached_bytes = labels_[i].cached_bytes + cached_bytes,
                      .parent = static_cast<std::uint32_t>(i),
                      .set = to};
    if (label.overhead + bounds_.rest(to) > aim_) {
      smallest_dropped_ = std::min(smallest_dropped_, label.overhead + bounds_.rest(to));
      return;
    }
    fresh_.push_back(label);
    if (fresh_.size() >= kFreshLimit && fresh_.size() >= 2 * thinned_) thin();
  }

  // Sorts the fresh labels and drops what is beaten.
  void thin() {
    std::ranges::sort(fresh_, earlier);
    std::size_t kept = 0;
    for (const Label& label : fresh_) {
      if (kept == 0 || !beats(fresh_[kept - 1], label)) fresh_[kept++] = label;
    }
    fresh_.resize(kept);
    thinned_ = kept;
  }

  // `kept` has no more overhead than `label`.
  [[nodiscard]] bool beats(const Label& kept, const Label& label) const {
    if (options_.prunings.dominance) return kept.cached_bytes <= label.cached_bytes;
    return kept.overhead == label.overhead;
  }

  void keep_best() {
    thin();
    REPRISE_CHECK(labels_.size() + fresh_.size() < std::numeric_limits<std::uint32_t>::max());
    labels_.insert(labels_.end(), fresh_.begin(), fresh_.end());
    labels_made_ += fresh_.size();
    fresh_.clear();
    thinned_ = 0;
  }

  [[nodiscard]] SetSequence trace() const {
    SetSequence sequence;
    for (std::size_t i = begin_[family_.whole()]; labels_[i].set != 0; i = labels_[i].parent) {
      sequence.push_back(labels_[i].set);
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
  std::vector<Label> labels_;
  std::vector<std::size_t> begin_;  // of the labels of a set
  std::vector<std::uint64_t> alive_;
  std::vector<Label> fresh_;  // of the set at hand
  std::size_t thinned_ = 0;   // size of fresh_ when it was last thinned
  std::size_t labels_made_ = 0;
};

}  // namespace

OverheadResult label_search(const Transitions& transitions, const OverheadOptions& options) {
  return LabelSearch(transitions, options).run();
}

}  // namespace reprise::detail
