#include "solve/lower_sets/overhead_search.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "check.h"

namespace reprise::detail {
namespace {

constexpr std::int64_t kTableUnits = 65536;   // the longest rows of a table
constexpr std::int64_t kRoundedUnits = 8192;  // the same after rounding
constexpr std::int64_t kExactDoubles = std::int64_t{1} << 51;

std::int64_t common_unit(const ForwardView& view) {
  std::int64_t unit = 0;
  for (const std::int64_t time : view.time) unit = std::gcd(unit, time);
  return std::max<std::int64_t>(1, unit);
}

std::int64_t overhead(const Transitions& transitions, const SetSequence& sequence) {
  std::int64_t sum = 0;
  SetId from = 0;
  for (const SetId to : sequence) {
    sum += transitions.overhead(from, to, transitions.single(from, to).cached_time);
    from = to;
  }
  return sum;
}

// Times rounded to units in favour of the objective: down for the least, up for the most.
OverheadResult search_in_units(const Transitions& transitions, OverheadOptions options, std::int64_t unit) {
  ForwardView view = transitions.view();
  for (std::int64_t& time : view.time) time = (time + (options.most ? unit - 1 : 0)) / unit;
  if (options.known_overhead) *options.known_overhead /= unit;
  const LowerSetFamily family = transitions.family().with_times_of(view);
  const Transitions in_units(view, family, transitions.keep_last());
  OverheadResult result = table_search(in_units, options);
  if (!result.sequence) return result;
  const std::int64_t rounded = unit * overhead(in_units, *result.sequence);
  result.overhead_error = std::abs(overhead(transitions, *result.sequence) - rounded);
  return result;
}

}  // namespace

SearchContext::SearchContext(const Transitions& transitions_, const OverheadOptions& options_)
    : transitions(transitions_),
      family(transitions_.family()),
      options(options_),
      bounds(transitions_, {.budget_bytes = options_.budget_bytes,
                            .most = options_.most,
                            .memory = options_.prunings.memory_bound,
                            .time = options_.prunings.time_bound,
                            .should_stop = options_.should_stop}) {}

bool SearchContext::stop() {
  stopped = stopped || bounds.stopped() || (options.should_stop && options.should_stop());
  return stopped;
}

Aim::Aim(const SequenceBounds& bounds, const OverheadOptions& options)
    : least_(bounds.rest(0)), known_(kUnreachable), total_(kUnreachable) {
  if (!options.prunings.time_bound) return;
  if (options.known_overhead) known_ = options.most ? -*options.known_overhead : *options.known_overhead;
  total_ = std::min(known_, least_ + std::abs(least_) / 32);
}

void Aim::raise(std::int64_t smallest_dropped) {
  REPRISE_CHECK(total_ < known_);  // a sequence that is known to exist was not found
  total_ = std::min(known_, std::max(smallest_dropped, least_ + 2 * (total_ - least_)));
}

namespace {

// A first search, exact wherever it can be.
OverheadResult first_search(const Transitions& transitions, const OverheadOptions& options, std::int64_t& unit) {
  const std::int64_t total_time = transitions.view().total_time();
  const std::int64_t units = total_time / unit;
  if (options.max_units > 0 && units > kRoundedUnits) {
    unit = total_time / options.max_units + 1;
    return search_in_units(transitions, options, unit);
  }
  if (options.prunings.table && units <= kTableUnits) {
    return unit == 1 ? table_search(transitions, options) : search_in_units(transitions, options, unit);
  }
  unit = std::max(unit, total_time / (4 * kRoundedUnits));
  return partial_search(transitions, options);
}

}  // namespace

OverheadResult extreme_overhead_sequence(const Transitions& transitions, const OverheadOptions& options) {
  if (transitions.view().total_bytes() >= kExactDoubles) return partial_search(transitions, options);
  std::int64_t unit = common_unit(transitions.view());
  OverheadResult result = first_search(transitions, options, unit);
  OverheadOptions coarser = options;
  while (result.too_many_partials) {
    unit *= 4;
    // Every row is one entry long then: there is nothing left to round.
    if (unit > transitions.view().total_time()) coarser.max_partials = std::numeric_limits<std::size_t>::max();
    const std::size_t partials = result.partials;
    result = search_in_units(transitions, coarser, unit);
    result.partials += partials;
  }
  return result;
}

}  // namespace reprise::detail
