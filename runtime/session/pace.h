// How long steps take to issue and to run, from the latest few that began on an idle device; on a busy device issuing
// would wait for earlier steps. CUDA graphs are useful if issuing takes about as long as running.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <deque>
#include <memory>
#include <optional>

namespace reprise {

class Pace {
 public:
  explicit Pace(c10::Device device) : device_(device) {}

  // Forward begins; its issuing is timed if the device is idle.
  void begin_step();
  void add_issue(double seconds);
  void end_step();
  // Whether issuing takes at least this share of a step's time.
  [[nodiscard]] bool is_launch_bound(double share);
  // Stops timing until is_launch_bound() is called again.
  void stop();

 private:
  struct Waiting {
    c10::Event begin;
    c10::Event end;
    double issue_seconds;
  };

  c10::Device device_;
  std::deque<double> shares_;  // the share of a step's time that issuing took
  std::optional<c10::Event> begin_;
  double issue_seconds_ = 0;
  std::deque<Waiting> waiting_;
  bool stopped_ = false;
};

}  // namespace reprise
