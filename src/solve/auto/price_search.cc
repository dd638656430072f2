#include "solve/auto/price_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace reprise::detail {
namespace {

constexpr std::size_t kBuckets = 64;
constexpr int kBisections = 8;

double shaped(std::size_t shape, double when) {
  constexpr double kSlope = 0.03;  // breaks ties between identical layers
  switch (shape) {
    case 0:
      return 1 + kSlope * when;
    case 1:
      return 1 - std::exp(-4 * when) + kSlope * when;
    default:
      return 2 * when;
  }
}

}  // namespace

PriceSearch::PriceSearch(const StepModel& model, Evaluator& evaluator, Pool& pool, std::span<const OpId> order,
                         std::function<bool()> out_of_work)
    : evaluator_(evaluator),
      pool_(pool),
      cut_(model, order),
      out_of_work_(std::move(out_of_work)),
      choice_(plain_choice(model)),
      cumulative_(order.size() + 1, 0),
      price_(std::min(kBuckets, order.size() + 1), 0) {
  choice_.order.assign(order.begin(), order.end());
}

Cost PriceSearch::judge(const ByValue<std::uint8_t>& kept) {
  cut_.solve(cumulative_, kept, choice_.labels);
  const Cost cost = evaluator_.evaluate(choice_);
  pool_.offer(cost, choice_);
  return cost;
}

void PriceSearch::grid(const ByValue<std::uint8_t>& kept, std::size_t heights) {
  constexpr std::size_t kShapes = 3;
  const double low = cut_.least_price() / 2;
  const double ratio = std::pow(4 * cut_.largest_price() / cut_.least_price(), 1 / static_cast<double>(heights));
  for (std::size_t i = 0; i <= heights; ++i) {
    const double height = low * std::pow(ratio, static_cast<double>(i));
    for (std::size_t shape = 0; shape < kShapes; ++shape) {
      if (out_of_work_()) return;
      for (std::size_t t = 0; t < cumulative_.size(); ++t) {
        cumulative_[t] = height * shaped(shape, static_cast<double>(t) / static_cast<double>(cumulative_.size()));
      }
      (void)judge(kept);
    }
  }
}

// The least price at the caller's op that brings the peak below the budget.
double PriceSearch::height_for(std::int64_t budget_bytes, const ByValue<std::uint8_t>& kept) {
  double low = cut_.least_price() / 4;
  double high = cut_.largest_price() * 2;
  for (int i = 0; i < kBisections && !out_of_work_(); ++i) {
    const double height = std::sqrt(low * high);
    std::ranges::fill(cumulative_, height);
    (judge(kept).peak_bytes > budget_bytes ? low : high) = height;
  }
  return high;
}

void PriceSearch::spread() {
  double sum = 0;
  std::size_t bucket = 0;
  for (std::size_t t = 0; t < cumulative_.size(); ++t) {
    for (; bucket <= t * price_.size() / cumulative_.size(); ++bucket) sum += price_[bucket];
    cumulative_[t] = sum;
  }
}

void PriceSearch::adjust(std::int64_t budget_bytes, double pace) {
  constexpr double kMostOver = 0.5;
  constexpr double kShare = 0.25;
  const auto profile = evaluator_.profile();
  std::vector<double> over(price_.size(), -1);
  for (std::size_t t = 0; t < cumulative_.size(); ++t) {
    double& highest = over[t * price_.size() / cumulative_.size()];
    highest = std::max(highest, static_cast<double>(profile[t] - budget_bytes) / static_cast<double>(budget_bytes));
  }
  double total = 0;
  for (const double price : price_) total += price;
  for (std::size_t b = 0; b < price_.size(); ++b) {
    const double change = pace * std::clamp(over[b], -kMostOver, kMostOver);
    price_[b] = std::max(0.0, price_[b] + change * (change > 0 ? kShare * total : price_[b]));
  }
}

void PriceSearch::aim(std::int64_t budget_bytes, const ByValue<std::uint8_t>& kept, std::size_t rounds) {
  if (budget_bytes <= 0) return;
  std::ranges::fill(price_, 0);
  price_[0] = height_for(budget_bytes, kept);
  for (std::size_t round = 0; round < rounds && !out_of_work_(); ++round) {
    spread();
    if (judge(kept) == Cost{}) return;
    adjust(budget_bytes, 1.5 / (1 + 0.1 * static_cast<double>(round)));
  }
}

}  // namespace reprise::detail
