// Chains with known optima.
#pragma once

#include <cstdint>
#include <vector>

namespace reprise::detail {

struct ChainVector {
  const char* name;
  std::vector<std::int64_t> sizes;
  std::int64_t chen;
  std::int64_t literal;
  std::int64_t repaired;
  std::int64_t dynamic_single;  // with T(n) = d_n
  std::int64_t dynamic_double;  // with T(n) = 2 d_n
};

// The layers of VGG-19 at batch 128, in units of 1/2048 MiB, so that all sizes are whole numbers.
inline std::vector<std::int64_t> vgg19_sizes() {
  const double mib[] = {0,   1568, 1568, 392, 784, 784, 196, 392, 392,   392, 392, 98,        196,
                        196, 196,  196,  49,  49,  49,  49,  49,  12.25, 2,   2,   0.48828125};
  std::vector<std::int64_t> sizes;
  for (const double size : mib) sizes.push_back(static_cast<std::int64_t>(size * 2048));
  return sizes;
}

inline std::vector<ChainVector> chain_vectors() {
  return {
      {"equal", {1, 1, 1, 1, 1, 1, 1}, 4, 5, 5, 5, 5},
      {"eight", {0, 7, 1, 6, 3, 6, 6, 7}, 17, 24, 24, 23, 24},
      {"seven", {0, 5, 10, 20, 5, 15, 5}, 35, 55, 55, 55, 55},
      {"narrowing", {4, 16, 16, 2, 8, 8, 1, 4, 1}, 34, 50, 50, 52, 52},
      {"waist", {3, 9, 9, 9, 1, 9, 9, 9, 2}, 30, 39, 39, 40, 40},
      {"one layer", {3, 5}, 5, 5, 10, 11, 13},
      {"doubling", {1, 2, 4, 8, 16}, 24, 30, 36, 33, 37},
      {"vgg19", vgg19_sizes(), 3724 * 2048, 5194 * 2048, 5194 * 2048, 4704 * 2048, 4704 * 2048},
  };
}

}  // namespace reprise::detail
