// How long steps take to issue, and to run, by the latest few that began on an idle device: else issuing waits for the
// steps before. CUDA graphs are worth it where issuing takes about as long as running.
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

  // Forward begins; its issuing is timed where the device is idle.
  void begin_step();
  void add_issue(double seconds);
  void end_step();
  [[nodiscard]] bool is_launch_bound();
  // Until it is asked again.
  void stop();

 private:
  struct Waiting {
    c10::Event begin;
    c10::Event end;
    double issue_seconds;
  };

  c10::Device device_;
  std::deque<double> shares_;  // of a step's time that issuing took
  std::optional<c10::Event> begin_;
  double issue_seconds_ = 0;
  std::deque<Waiting> waiting_;
  bool stopped_ = false;
};

}  // namespace reprise
