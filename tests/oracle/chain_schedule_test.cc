// Compares the planners whose schedules run stages more than once with machines that carry schedules out event by
// event.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <tuple>

#include "oracle/chain_reference.h"
#include "solve/chain/chen_chain.h"
#include "solve/chain/revolve.h"
#include "support/small_tests.h"

namespace reprise::test {
namespace {

using detail::revolve_forward_runs;
using detail::revolve_schedule;
using detail::RotorAnswer;
using detail::RotorTable;

constexpr int kScheduleRounds = kSmallTests ? 20 : 1200;

ScheduleRun run_equal(std::uint32_t stages, const std::vector<ChainAction>& actions) {
  const std::vector<RotorStage> equal(stages, RotorStage{.forward_ns = 1, .output_bytes = 1, .saved_bytes = 1});
  return run_schedule(equal, 1, actions);
}

TEST(RevolveOracleTest, TheClosedFormIsTheRecurrence) {
  constexpr std::uint32_t kStages = 60;
  constexpr std::uint32_t kStates = 7;
  std::int64_t t[kStates + 1][kStages + 1] = {};
  for (std::uint32_t s = 1; s <= kStates; ++s) {
    for (std::uint32_t l = 2; l <= kStages; ++l) {
      t[s][l] = std::int64_t{l} * (l - 1) / 2;
      for (std::uint32_t k = 1; s > 1 && k < l; ++k) t[s][l] = std::min(t[s][l], k + t[s - 1][l - k] + t[s][k]);
      ASSERT_EQ(revolve_forward_runs(l, s), t[s][l]) << l << " stages, " << s << " states";
    }
  }
}

TEST(RevolveOracleTest, SchedulesReverseTheChainWithTheirStates) {
  for (std::uint32_t s = 1; s <= 9; ++s) {
    for (std::uint32_t l = 1; l < 60; ++l) {
      const ScheduleRun run = run_equal(l, revolve_schedule(l, s));
      ASSERT_EQ(run.advances, revolve_forward_runs(l, s)) << l << " stages, " << s << " states";
      ASSERT_LE(run.most_stored, s);
    }
  }
}

TEST(ChenRecursiveOracleTest, StoresTheLogarithmOfTheLength) {
  for (std::uint32_t l = 1; l < 300; ++l) {
    const ScheduleRun run = run_equal(l, detail::chen_recursive(l));
    const auto log = static_cast<std::uint32_t>(std::bit_width(l - 1));
    ASSERT_LE(run.most_stored, log);
    ASSERT_LE(run.advances, std::int64_t{l} * log);
  }
}

std::vector<RotorStage> random_stages(Random& random, int count, int most_bytes, std::int64_t input_bytes) {
  std::vector<RotorStage> stages;
  std::int64_t before = input_bytes;
  for (int k = 0; k < count; ++k) {
    RotorStage stage{.forward_ns = random.between(0, 9), .backward_ns = random.between(0, 9)};
    stage.output_bytes = random.between(0, most_bytes);
    stage.saved_bytes = stage.output_bytes + (random.chance(70) ? random.between(0, 2 * most_bytes) : 0);
    stage.gradient_bytes = stage.output_bytes;
    stage.forward_overhead_bytes = random.chance(50) ? random.between(0, 4 * most_bytes) : 0;
    stage.backward_overhead_bytes = before + (random.chance(50) ? random.between(0, most_bytes) : 0);
    before = stage.output_bytes;
    stages.push_back(stage);
  }
  return stages;
}

// The least time of all persistent schedules for each budget from 0 to `most`; -1 if none fits.
Sizes best_times(const std::vector<RotorStage>& stages, std::int64_t input_bytes, std::int64_t most) {
  Sizes best(static_cast<std::size_t>(most) + 1, -1);
  for (const auto& actions : persistent_schedules(1, static_cast<std::uint32_t>(stages.size()))) {
    const ScheduleRun run = run_schedule(stages, input_bytes, actions);
    for (auto m = static_cast<std::size_t>(run.peak_bytes); m < best.size(); ++m) {
      if (best[m] < 0 || run.time_ns < best[m]) best[m] = run.time_ns;
    }
  }
  return best;
}

TEST(RotorOracleTest, MatchesAllPersistentSchedules) {
  Random random(1);
  for (int round = 0; round < kScheduleRounds; ++round) {
    const std::int64_t input = random.between(0, 4);
    const auto stages = random_stages(random, random.between(1, round % 10 == 0 ? 5 : 4), 4, input);
    constexpr std::int64_t kMost = 100;
    const Sizes best = best_times(stages, input, kMost);
    const RotorTable table(stages, input, kMost, kMost);
    std::int64_t least = -1;
    for (std::int64_t m = 0; m <= kMost; ++m) {
      const auto answer = table.solve(m);
      ASSERT_EQ(answer ? answer->time_ns : -1, best[static_cast<std::size_t>(m)]) << "budget " << m;
      if (!answer) continue;
      if (least < 0) least = m;
      const ScheduleRun run = run_schedule(stages, input, answer->actions);
      ASSERT_LE(run.peak_bytes, m);
      ASSERT_EQ(run.time_ns, answer->time_ns);
    }
    ASSERT_EQ(table.least_memory_bytes().value_or(-1), least);
  }
}

// The recurrence as the paper writes it down; stages are counted from 1.
class NaiveRotor {
 public:
  explicit NaiveRotor(const std::vector<RotorStage>& stages) : stages_(stages) {}

  std::int64_t time(std::uint32_t s, std::uint32_t t, std::int64_t m) {
    if (m < 0) return kNever;
    const auto [it, fresh] = known_.try_emplace({s, t, m}, kNever);
    if (!fresh) return it->second;
    const RotorStage& stage = at(s);
    const std::int64_t gradient = at(t).gradient_bytes;
    const std::int64_t own = stage.forward_ns + stage.backward_ns;
    std::int64_t best = kNever;
    if (m >= stage.saved_bytes + std::max(gradient + stage.forward_overhead_bytes,
                                          stage.gradient_bytes + stage.backward_overhead_bytes)) {
      best = own + (s == t ? 0 : time(s + 1, t, m - stage.saved_bytes));
    }
    std::int64_t through = stage.output_bytes + stage.forward_overhead_bytes;
    for (std::uint32_t j = s + 1; j < t; ++j) {
      through = std::max(through, at(j - 1).output_bytes + at(j).output_bytes + at(j).forward_overhead_bytes);
    }
    std::int64_t advance = 0;
    for (std::uint32_t c = s + 1; c <= t && m >= gradient + through; ++c) {
      advance += at(c - 1).forward_ns;
      best = std::min(best, advance + time(c, t, m - at(c - 1).output_bytes) + time(s, c - 1, m));
    }
    best = std::min(best, kNever);
    known_[{s, t, m}] = best;
    return best;
  }

  static constexpr std::int64_t kNever = std::int64_t{1} << 50;

 private:
  [[nodiscard]] const RotorStage& at(std::uint32_t k) const { return stages_[k - 1]; }
  const std::vector<RotorStage>& stages_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::int64_t>, std::int64_t> known_;
};

TEST(RotorOracleTest, LongChainsMatchTheRecurrence) {
  Random random(3);
  for (int round = 0; round < std::max(kScheduleRounds / 50, 4); ++round) {
    const std::int64_t input = random.between(0, 3);
    const auto stages = random_stages(random, random.between(9, 27), 3, input);
    constexpr std::int64_t kMost = 50;
    const RotorTable table(stages, input, kMost, kMost);
    NaiveRotor naive(stages);
    for (std::int64_t m = input; m <= kMost; ++m) {
      const std::int64_t time = naive.time(1, static_cast<std::uint32_t>(stages.size()), m - input);
      const auto answer = table.solve(m);
      ASSERT_EQ(answer ? answer->time_ns : NaiveRotor::kNever, time) << "budget " << m;
    }
  }
}

TEST(RotorOracleTest, LongSchedulesKeepTheBudget) {
  Random random(2);
  int found = 0;
  for (int round = 0; round < kScheduleRounds / 10; ++round) {
    const std::int64_t input = random.between(0, 1000);
    const auto stages = random_stages(random, random.between(5, 40), 1000, input);
    const std::int64_t most = 1000 * random.between(8, 60);
    const RotorTable table(stages, input, most, random.between(60, 400));
    std::int64_t last = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t m = 0; m <= most; m += most / 17) {
      const auto answer = table.solve(m);
      if (!answer) continue;
      ++found;
      const ScheduleRun run = run_schedule(stages, input, answer->actions);
      ASSERT_LE(run.peak_bytes, m);
      ASSERT_EQ(run.time_ns, answer->time_ns);
      ASSERT_LE(answer->time_ns, last) << "more memory, more time";
      last = answer->time_ns;
    }
  }
  EXPECT_GT(found, kScheduleRounds / 10);
}

}  // namespace
}  // namespace reprise::test
