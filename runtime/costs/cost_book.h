// What calls cost on this machine, by their signatures: measured once, and kept in a file for later runs with the same
// versions and flags, in either language.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
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

// Costs of all calls of a step, and the layouts that its results have on the device where capture took them for others:
// where there are any, the step has to be captured again with these.
struct PricedStep {
  Costs costs;
  KnownLayouts wrong{};
  double seconds = 0;
};

class CostBook {
 public:
  // Of the device with the versions and flags of now. A file that cannot be used is made anew, with a warning.
  explicit CostBook(c10::Device device);

  [[nodiscard]] const std::map<std::string, CallCost>& calls() const { return calls_; }
  [[nodiscard]] const KnownLayouts& layouts() const { return layouts_; }
  // What libraries keep of the device after the first calls of a thread (cuBLAS: its workspace).
  [[nodiscard]] std::int64_t kept_bytes() const { return kept_bytes_; }

  // Measures what is not known yet, and writes it down. Throws Unsupported where a call does not run on made-up
  // numbers.
  [[nodiscard]] PricedStep price(const CapturedStep& step);

 private:
  void read();
  void write() const;
  [[nodiscard]] const CallCost& cost_of(const Program& program, OpId op, const std::string& signature);

  c10::Device device_;
  std::string name_;  // of the file
  std::map<std::string, CallCost> calls_;
  KnownLayouts layouts_;
  std::int64_t kept_bytes_ = 0;
  bool changed_ = false;
};

// The same costs with times by the roofline: smooth, where measured ones are noisy.
[[nodiscard]] Costs with_roofline_times(Costs costs, const Program& program);

// A step and what it costs, once capture and device agree on how results lie in memory.
struct MeasuredStep {
  CapturedStep step;
  Costs costs;
  double seconds = 0;
};

// Where they disagree the device is right, and the step is captured again with the layouts that are known; without a
// function for it, the capture saw them. Throws Unsupported where that does not come to an end.
[[nodiscard]] MeasuredStep measure_step(CapturedStep step,
                                        const std::function<CapturedStep(const KnownLayouts&)>& capture_again);

}  // namespace reprise
