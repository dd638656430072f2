// What calls cost on this machine, by their signatures: measured once, and kept in a file for later runs with the same
// versions and flags, in either language.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "runtime/costs/measure.h"
#include "runtime/program/captured_step.h"

namespace reprise {

struct CallCost {
  std::int64_t time_ns = 0;
  std::int64_t workspace_bytes = 0;
  ResultLayouts results{};
};

// The costs of all calls of a step, and the layouts of results that differ on the device from what the capture assumed.
// If there are any such layouts, the step has to be captured again with them.
struct PricedStep {
  Costs costs;
  KnownLayouts wrong{};
  double seconds = 0;
};

class CostBook {
 public:
  // Opens the book of the device for the current versions and flags. A file that cannot be used is made again, with a
  // warning.
  explicit CostBook(c10::Device device);

  [[nodiscard]] const std::map<std::string, CallCost>& calls() const { return calls_; }
  [[nodiscard]] const KnownLayouts& layouts() const { return layouts_; }
  // Memory that libraries keep on the device after the first calls of a thread (cuBLAS keeps its workspace).
  [[nodiscard]] std::int64_t kept_bytes() const { return kept_bytes_; }

  // Measures the calls that are not known yet and writes their costs to the file. Throws Unsupported if a call does not
  // run on made-up numbers.
  [[nodiscard]] PricedStep price(const CapturedStep& step);

 private:
  void read();
  void write();
  [[nodiscard]] const CallCost& cost_of(const Program& program, OpId op, const std::string& signature);

  c10::Device device_;
  std::string name_;  // of the file
  std::map<std::string, CallCost> calls_;
  KnownLayouts layouts_;
  std::int64_t kept_bytes_ = 0;
  std::set<std::string> new_calls_;  // that the file does not have, or has otherwise
  std::set<std::string> new_layouts_;
  bool keeps_more_ = false;  // than the file says
};

// The same costs with times by the roofline, which are smooth; measured times are noisy.
[[nodiscard]] Costs with_roofline_times(Costs costs, const Program& program);

// A step and its costs, after the capture and the device agree on the layouts of results.
struct CostedStep {
  CapturedStep step;
  Costs costs;
  double seconds = 0;
};

// If they disagree, the device is right, and the step is captured again with the known layouts. Without a function for
// that, the capture itself saw the layouts on the device. Throws Unsupported if they never agree.
[[nodiscard]] CostedStep measure_step(CapturedStep step,
                                      const std::function<CapturedStep(const KnownLayouts&)>& capture_again);

}  // namespace reprise
