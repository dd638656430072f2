#include "solve/overlap/hoist.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "plan/liveness.h"
#include "simulate/simulator.h"
#include "solve/overlap/flights.h"

namespace reprise::detail {
namespace {

class Hoisting {
 public:
  Hoisting(const Graph& graph, const Costs& costs, std::span<const OpId> runs, std::int64_t budget_bytes)
      : flights_(graph, costs, runs), budget_bytes_(budget_bytes) {
    for (std::uint32_t f = 0; f < flights_.all().size(); ++f) {
      by_stream_.resize(std::max<std::size_t>(by_stream_.size(), flights_.all()[f].stream + 1));
      by_stream_[flights_.all()[f].stream].push_back(f);
    }
  }

  std::vector<OpId> runs() && {
    constexpr int kRounds = 4;
    // What is `once` starts as soon as it can.
    for (Flight& flight : flights_.all()) {
      if (flight.floats) flights_.move_start(flight, flight.first_place);
    }
    flights_.float_waits();
    (void)flights_.fly();
    for (int round = 0; round < kRounds; ++round) {
      for (const auto& stream : by_stream_) place_starts(stream);
      flights_.float_waits();
      time_ns_ = flights_.fly();
      keep_if_best();
    }
    restore();
    come_down();
    time_ns_ = flights_.fly();
    settle();
    return flights_.runs();
  }

 private:
  struct Place {
    std::size_t start;
    std::size_t wait;
  };

  // The first place to which the device comes when the collective is through. If it waits for it now, it will come to
  // later places by that much sooner.
  [[nodiscard]] std::size_t place_when_through(const Flight& flight) const {
    const auto& clock_ns = flights_.clock_ns();
    const auto place = std::ranges::lower_bound(clock_ns, flight.ready_ns + flight.exposed_ns);
    return static_cast<std::size_t>(place - clock_ns.begin());
  }

  // The starts of one communicator as late as time allows, by the clock of the last flight. What is `once` has its turn
  // where it was.
  void place_starts(const std::vector<std::uint32_t>& stream) {
    const auto& clock_ns = flights_.clock_ns();
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;  // when, by what is `once`; rising
    for (const std::uint32_t f : stream) {
      const Flight& flight = flights_.all()[f];
      if (flight.floats) taken.emplace_back(flight.ready_ns - flight.time_ns, flight.ready_ns);
    }
    std::ranges::sort(taken);
    std::int64_t next_ns = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = stream.size(); i-- > 0;) {
      Flight& flight = flights_.all()[stream[i]];
      if (flight.floats) continue;
      std::int64_t begin_ns = std::min(clock_ns[flight.home], next_ns) - flight.time_ns;
      for (std::size_t k = taken.size(); k-- > 0;) {
        const auto [from_ns, to_ns] = taken[k];
        if (to_ns > begin_ns && from_ns < begin_ns + flight.time_ns) begin_ns = from_ns - flight.time_ns;
      }
      next_ns = begin_ns;
      const auto after = std::ranges::upper_bound(clock_ns, begin_ns) - clock_ns.begin();
      const auto place = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after, 1) - 1);
      flights_.move_start(flight, std::clamp(place, flight.first_place, flight.home));
    }
  }

  void keep_if_best() {
    const std::pair now{time_ns_, flights_.peak_bytes()};
    if (!best_.empty() && best_cost_ <= now) return;
    best_cost_ = now;
    best_.clear();
    for (const Flight& flight : flights_.all()) best_.push_back({flight.start_at, flight.wait_at});
  }

  void restore() {
    for (std::size_t f = 0; f < best_.size(); ++f) put(flights_.all()[f], best_[f]);
  }
  void put(Flight& flight, Place at) {
    flights_.move_start(flight, at.start);
    flights_.move_wait(flight, at.wait);
  }

  // While the highest place is above the budget: what is in flight there and needed last stands back.
  void come_down() {
    const auto& bytes = flights_.bytes();
    while (true) {
      const auto highest = static_cast<std::size_t>(std::ranges::max_element(bytes) - bytes.begin());
      if (bytes[highest] <= budget_bytes_) return;
      Flight* last = nullptr;
      for (Flight& flight : flights_.all()) {
        if (2 * flight.start_at <= highest && highest < 2 * flight.home &&
            (last == nullptr || last->home <= flight.home)) {
          last = &flight;
        }
      }
      if (last != nullptr) {
        flights_.move_start(*last, highest / 2 + 1);
        continue;
      }
      Flight* largest = nullptr;
      for (Flight& flight : flights_.all()) {
        const bool holds = 2 * flight.home < highest && highest <= 2 * flight.wait_at;
        if (holds && (largest == nullptr || largest->down_bytes < flight.down_bytes)) largest = &flight;
      }
      if (largest == nullptr) return;
      flights_.move_wait(*largest, (highest - 1) / 2);
    }
  }

  // Moves on what the device waits for, the longest wait first, as long as that makes the step faster.
  void settle() {
    constexpr int kPasses = 6;
    constexpr std::size_t kMost = 40;
    for (int pass = 0; pass < kPasses; ++pass) {
      std::vector<std::uint32_t> waiting;
      for (std::uint32_t f = 0; f < flights_.all().size(); ++f) {
        if (flights_.all()[f].exposed_ns > 0) waiting.push_back(f);
      }
      std::ranges::stable_sort(waiting, std::ranges::greater{},
                               [&](std::uint32_t f) { return flights_.all()[f].exposed_ns; });
      waiting.resize(std::min(waiting.size(), kMost));
      const std::int64_t before_ns = time_ns_;
      for (const std::uint32_t f : waiting) move_on(flights_.all()[f]);
      if (time_ns_ == before_ns) return;
    }
  }

  void move_on(Flight& flight) {
    const std::size_t up = highest_start(flight), down = lowest_wait(flight);
    const std::size_t ready = std::clamp(place_when_through(flight), flight.wait_at, down);
    const std::array tries{Place{up, flight.wait_at}, Place{(up + flight.start_at) / 2, flight.wait_at},
                           Place{flight.start_at, ready}, Place{flight.start_at, down}};
    for (const Place at : tries) {
      const Place now{flight.start_at, flight.wait_at};
      if (flight.floats ? at.wait == now.wait && at.start == now.start : at.start == now.start) continue;
      put(flight, flight.floats ? at : Place{at.start, now.wait});
      const std::int64_t then_ns = flights_.peak_bytes() <= budget_bytes_ ? flights_.fly() : kTooLong;
      if (then_ns < time_ns_) {
        time_ns_ = then_ns;
      } else {
        put(flight, now);
      }
    }
    (void)flights_.fly();
  }

  // As far as there is room for what it makes.
  [[nodiscard]] std::size_t highest_start(const Flight& flight) const {
    std::size_t place = flight.start_at;
    while (place > flight.first_place && place <= flight.home &&
           most_at(2 * place - 2) + flight.up_bytes + flight.workspace_bytes <= budget_bytes_) {
      --place;
    }
    return place;
  }
  [[nodiscard]] std::size_t lowest_wait(const Flight& flight) const {
    std::size_t place = flight.wait_at;
    while (place < flight.last_place && most_at(2 * place + 1) + flight.down_bytes <= budget_bytes_) ++place;
    return place;
  }
  [[nodiscard]] std::int64_t most_at(std::size_t at) const {
    return std::max(flights_.bytes()[at], flights_.bytes()[at + 1]);
  }

  static constexpr std::int64_t kTooLong = Simulator::kTooLong;

  Flights flights_;
  std::int64_t budget_bytes_;
  std::vector<std::vector<std::uint32_t>> by_stream_;
  std::vector<Place> best_;
  std::pair<std::int64_t, std::int64_t> best_cost_;
  std::int64_t time_ns_ = 0;
};

}  // namespace

Plan hoist(const Graph& graph, const Costs& costs, std::span<const OpId> runs, std::int64_t budget_bytes) {
  Plan plain = place_frees(graph, runs);
  Simulator simulator(graph, costs);
  const Simulation before = simulator.run(plain);
  Plan plan = place_frees(graph, Hoisting(graph, costs, runs, budget_bytes).runs());
  const Simulation after = simulator.run(plan);
  if (after.peak_bytes > std::max(budget_bytes, before.peak_bytes)) return plain;
  return after.time_ns < before.time_ns ? plan : plain;
}

}  // namespace reprise::detail
