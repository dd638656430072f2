// The paper's table, one row per set: row[t] = fewest cached bytes with overhead t; see overhead_search.h.
//
// With dominance a row falls from left to right and ends where it stops falling, so the entries that may go on
// (those with few enough cached bytes) are its right end, and a transition from L to L' is one loop without branches:
//
//   row'[t + overhead] = min(row'[t + overhead], row[t] + cached_bytes)    for all t from some t on
//
// Nothing else is stored: the sequence is found again from the last entry backwards. Doubles, because they are exact
// here and have a fast minimum. O(pairs * row length) time, O(sets * row length) memory.
#include <algorithm>
#include <cmath>
#include <limits>

#include "check.h"
#include "solve/lower_sets/overhead_search.h"

namespace reprise::detail {
namespace {

constexpr double kNever = HUGE_VAL;

// Fewest cached bytes for the overheads first, first + 1, ...
struct Row {
  std::int64_t first = 0;
  std::vector<double> cached{};

  [[nodiscard]] std::int64_t last() const { return first + static_cast<std::int64_t>(cached.size()) - 1; }
};

// The part of a row that can go on to the set at hand.
struct Source {
  SetId from;
  std::size_t begin;  // index into the row's entries
  std::int64_t overhead;
  double cached_bytes;
  double most_cached;
};

class TableSearch {
 public:
  TableSearch(const Transitions& transitions, const OverheadOptions& options)
      : context_(transitions, options), family_(context_.family), options_(options), bounds_(context_.bounds) {}

  OverheadResult run() {
    OverheadResult result;
    if (!context_.stop() && bounds_.feasible() && aim_until_found()) result.sequence = read_back();
    result.too_many_partials = too_many_;
    result.stopped = context_.stopped;
    result.partials = entries_made_;
    return result;
  }

 private:
  bool aim_until_found() {
    for (Aim aim(bounds_, options_);; aim.raise(smallest_dropped_)) {
      if (search(aim.total())) return true;
      if (context_.stopped || too_many_) return false;
    }
  }

  // Fills the rows with all that may end at or below the aim.
  bool search(std::int64_t aim) {
    aim_ = aim;
    smallest_dropped_ = kUnreachable;
    rows_.assign(family_.size(), Row{});
    rows_[0] = {.first = 0, .cached = {0.0}};
    alive_.assign((family_.size() + 63) / 64, 0);
    alive_[0] = 1;
    std::size_t entries = 0;
    for (SetId to = 1; to < family_.size(); ++to) {
      if (context_.stop() || too_many_) return false;
      if (!bounds_.useful(to)) continue;
      find_sources(to);
      fill(to);
      entries += rows_[to].cached.size();
      entries_made_ += rows_[to].cached.size();
      too_many_ = entries > options_.max_partials;
      if (!rows_[to].cached.empty()) alive_[to / 64] |= std::uint64_t{1} << (to % 64);
    }
    return !rows_.back().cached.empty();
  }

  void find_sources(SetId to) {
    sources_.clear();
    const auto skip = [&](std::size_t word) { return bounds_.beyond_budget(word, to); };
    context_.transitions.for_each_part(
        to, alive_, skip, [&](const Part& part) { part.for_each([&](SetId from) { add_source(from, to, part); }); });
  }

  void add_source(SetId from, SetId to, const Part& part) {
    const std::vector<double>& cached = rows_[from].cached;
    const auto most = static_cast<double>(bounds_.most_cached(from, to, part.cached_bytes));
    const auto fits = [&](double bytes) { return bytes <= most; };
    const auto it = options_.prunings.dominance
                        ? std::ranges::partition_point(cached, [&](double bytes) { return !fits(bytes); })
                        : std::ranges::find_if(cached, fits);
    if (it == cached.end()) return;
    const auto begin = static_cast<std::size_t>(it - cached.begin());
    const std::int64_t overhead = bounds_.overhead(from, to, part.cached_time);
    const std::int64_t total = rows_[from].first + static_cast<std::int64_t>(begin) + overhead + bounds_.rest(to);
    if (total > aim_) {
      smallest_dropped_ = std::min(smallest_dropped_, total);
      return;
    }
    sources_.push_back({from, begin, overhead, static_cast<double>(part.cached_bytes), most});
  }

  void fill(SetId to) {
    if (sources_.empty()) return;
    Row& row = rows_[to];
    std::int64_t last = std::numeric_limits<std::int64_t>::min();
    row.first = std::numeric_limits<std::int64_t>::max();
    for (const Source& s : sources_) {
      row.first = std::min(row.first, rows_[s.from].first + static_cast<std::int64_t>(s.begin) + s.overhead);
      last = std::max(last, rows_[s.from].last() + s.overhead);
    }
    if (last > aim_ - bounds_.rest(to)) {
      last = aim_ - bounds_.rest(to);
      smallest_dropped_ = std::min(smallest_dropped_, aim_ + 1);
    }
    row.cached.assign(static_cast<std::size_t>(last - row.first + 1), kNever);
    for (const Source& s : sources_) merge(s, row);
    if (options_.prunings.dominance) keep_falling(row);
  }

  void merge(const Source& s, Row& row) const {
    const Row& from = rows_[s.from];
    const auto target =
        static_cast<std::size_t>(from.first + static_cast<std::int64_t>(s.begin) + s.overhead - row.first);
    const std::size_t count = std::min(from.cached.size() - s.begin, row.cached.size() - target);
    const double* in = from.cached.data() + s.begin;
    double* out = row.cached.data() + target;
    if (options_.prunings.dominance) {
      for (std::size_t i = 0; i < count; ++i) out[i] = std::min(out[i], in[i] + s.cached_bytes);
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (in[i] <= s.most_cached) out[i] = std::min(out[i], in[i] + s.cached_bytes);
    }
  }

  // More overhead is only worth having with fewer cached bytes.
  static void keep_falling(Row& row) {
    for (std::size_t i = 1; i < row.cached.size(); ++i) row.cached[i] = std::min(row.cached[i], row.cached[i - 1]);
    const auto end = std::ranges::find(row.cached, row.cached.back());
    row.cached.resize(static_cast<std::size_t>(end - row.cached.begin()) + 1);
  }

  [[nodiscard]] SetSequence read_back() {
    SetSequence sequence;
    SetId set = family_.whole();
    std::size_t i = 0;
    while (rows_[set].cached[i] == kNever) ++i;
    while (set != 0) {
      sequence.push_back(set);
      go_back(set, i);
    }
    std::ranges::reverse(sequence);
    return sequence;
  }

  // Finds where entry i of the set's row came from.
  void go_back(SetId& set, std::size_t& i) {
    const Row& row = rows_[set];
    const double cached = row.cached[i];
    if (options_.prunings.dominance) {
      while (i > 0 && row.cached[i - 1] == cached) --i;  // carried over by keep_falling
    }
    find_sources(set);
    for (const Source& s : sources_) {
      const Row& from = rows_[s.from];
      const std::int64_t j = row.first + static_cast<std::int64_t>(i) - s.overhead - from.first;
      if (j < static_cast<std::int64_t>(s.begin) || j >= static_cast<std::int64_t>(from.cached.size())) continue;
      const double before = from.cached[static_cast<std::size_t>(j)];
      if (before > s.most_cached || before + s.cached_bytes != cached) continue;
      set = s.from;
      i = static_cast<std::size_t>(j);
      return;
    }
    REPRISE_CHECK(false && "a table entry came from somewhere");
  }

  SearchContext context_;
  const LowerSetFamily& family_;
  const OverheadOptions& options_;
  const SequenceBounds& bounds_;
  std::int64_t aim_ = 0;
  std::int64_t smallest_dropped_ = 0;
  std::vector<Row> rows_;
  std::vector<std::uint64_t> alive_;
  std::vector<Source> sources_;  // of the set at hand
  std::size_t entries_made_ = 0;
  bool too_many_ = false;
};

}  // namespace

OverheadResult table_search(const Transitions& transitions, const OverheadOptions& options) {
  return TableSearch(transitions, options).run();
}

}  // namespace reprise::detail
