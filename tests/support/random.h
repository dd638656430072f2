// Random numbers that are the same on every machine and with every standard library.
#pragma once

#include <cstdint>

namespace reprise::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // A number from 0 .. bound-1, by splitmix64. The bias of the remainder does not matter here.
  std::int64_t below(std::int64_t bound) {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return static_cast<std::int64_t>((z ^ (z >> 31U)) % static_cast<std::uint64_t>(bound));
  }
  int between(int low, int high) { return low + static_cast<int>(below(high - low + 1)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

}  // namespace reprise::test
