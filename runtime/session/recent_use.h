// How often something was used lately, in comparison with others of its kind.
#pragma once

#include <cmath>
#include <cstdint>

namespace reprise {

// `now` counts the uses of all that are compared.
class RecentUse {
 public:
  void note(std::int64_t now) {
    score_ = at(now) + 1;
    last_ = now;
  }
  [[nodiscard]] double at(std::int64_t now) const {
    return score_ * std::pow(kRemembered, static_cast<double>(now - last_));
  }
  // Clearly, so that two that are used alike do not take each other's place again and again.
  [[nodiscard]] bool is_more_than(const RecentUse& other, std::int64_t now) const {
    return at(now) > 2 * other.at(now);
  }

 private:
  static constexpr double kRemembered = 0.98;  // of a use, after one other: half of it after 34

  double score_ = 0;
  std::int64_t last_ = 0;
};

}  // namespace reprise
