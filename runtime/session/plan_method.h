// How plans are searched for: by which planner, and with how much of the host's memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "reprise/solve.h"

namespace reprise {

struct PlanMethod {
  PlanMethod(const char* by) : PlanMethod(std::string(by)) {}   // NOLINT: a planner alone is a method
  PlanMethod(std::string by, std::int64_t with_host_bytes = 0)  // NOLINT: a planner alone is a method
      : planner(std::move(by)), host_budget_bytes(with_host_bytes) {}

  std::string planner;
  std::int64_t host_budget_bytes;  // 0: plans do not copy to the host

  [[nodiscard]] SolveOptions options(std::int64_t budget_bytes) const {
    return {.planner = planner, .budget_bytes = budget_bytes, .host_budget_bytes = host_budget_bytes};
  }

  friend bool operator==(const PlanMethod&, const PlanMethod&) = default;
};

}  // namespace reprise
