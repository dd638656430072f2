// How plans are searched for: by which planner, and with how much of the host's memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace reprise {

struct PlanMethod {
  PlanMethod(const char* by) : PlanMethod(std::string(by)) {}   // NOLINT: a planner alone is a method
  PlanMethod(std::string by, std::int64_t with_host_bytes = 0)  // NOLINT: a planner alone is a method
      : planner(std::move(by)), host_budget_bytes(with_host_bytes) {}

  std::string planner;
  std::int64_t host_budget_bytes;  // 0: plans do not copy to the host

  friend bool operator==(const PlanMethod&, const PlanMethod&) = default;
};

}  // namespace reprise
