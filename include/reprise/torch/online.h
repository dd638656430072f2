// A budget of bytes for ordinary libtorch code that cannot be captured: shapes that depend on numbers, graphs that are
// kept, backward passes through backward passes.
//
//   {
//     const reprise::Online online({.budget_bytes = 6'000'000'000});
//     for (...) {                        // any code: forward, backward, optimizer
//       at::Tensor loss = net->forward(batch).pow(2).mean();
//       if (loss.item<float>() > 1) loss.backward();
//       optimizer.step();
//     }
//   }
//
// The code runs as it is. When the allocator would pass the budget, memory is taken from under results of calls, and
// before somebody reads such a result it is computed again, in place (dynamic tensor rematerialization). Results,
// buffers and the random generator are bit for bit those of the same code without it.
//
// On the CPU and on CUDA. Libtorch 2.13 and later tell when the address of a tensor is taken by hand, such as for a
// kernel that is not an operator: the tensor then stays where it is. Before 2.13, taking the address of a result is an
// error that says so, and writes by hand into memory that is older than the mode are not noticed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reprise/costs.h"
#include "reprise/plan.h"

namespace reprise {

// Whether this build can do it on the device: on CUDA it needs the headers of CUDA's runtime.
[[nodiscard]] bool online_is_available(c10::DeviceType device);

struct OnlineOptions {
  // The highest number of bytes that the device's allocator may have handed out. Memory that the CPU's handed out
  // before the first use of Reprise counts only if it belongs to `older`.
  std::int64_t budget_bytes = 0;
  // Results on other devices, and of calls on other streams than the one that is current when the mode begins, stay as
  // they are.
  c10::Device device = c10::kCPU;
  std::vector<at::Tensor> older{};
  // Results that are smaller are never taken away.
  std::int64_t smallest_bytes = std::int64_t{16} << 10;
  // In one step, recomputation may take so many times as long as the calls themselves; above that a BudgetExceeded says
  // which budget would do. 0: it may take any time.
  double most_recomputation = 8;
  // A step that needed memory taken away is planned before the next one, for at most so long, and steps with the same
  // calls follow the plan. 0: no step is planned.
  double planning_seconds = 0.5;
  // Called instead of throwing BudgetExceeded, and has to throw. For languages whose errors are of another type.
  std::function<void(const std::string& message)> refuse{};
};

struct OnlineSummary {
  std::int64_t calls = 0;                // that were seen
  std::int64_t evictions = 0;            // results that were taken away
  std::int64_t repeated_calls = 0;       // calls made again
  std::int64_t call_ns = 0;              // what the calls took
  std::int64_t recompute_ns = 0;         // what the repeated ones took when they were first made
  std::int64_t peak_bytes = 0;           // the highest count of the budget
  std::int64_t plain_peak_bytes = 0;     // what would have been the highest without taking anything away
  std::int64_t steps = 0;                // that ended: with a backward pass that does not keep its graph
  std::int64_t followed_steps = 0;       // that did what an earlier one had done, and followed its plan to the end
  std::int64_t departures = 0;           // steps that began to follow a plan and then did something else
  std::int64_t scripts = 0;              // steps whose calls are known by now
  std::int64_t unplanned_evictions = 0;  // of results that the plan of a followed step wanted to keep
  double planning_seconds = 0;
};

// A step whose calls are known, as planners see it, and the plan that steps with the same calls follow. Memory that is
// not the step's own is in it as a resident value, and, where it comes and goes, as ops named "outside".
struct OnlineStep {
  CostedGraph step;
  Plan plan;
};

// While this object exists, the code of all threads runs within the budget. A process can have one at a time. Calls
// throw BudgetExceeded, with what is in the way, if everything that can be computed again is gone and it is not enough.
// The end restores everything that the program still holds.
class Online {
 public:
  explicit Online(OnlineOptions options);
  ~Online();
  Online(const Online&) = delete;
  Online& operator=(const Online&) = delete;

  // Restores what the program holds; nothing is taken away any more. The destructor does the same.
  void end();
  void set_budget(std::int64_t budget_bytes);
  [[nodiscard]] OnlineSummary summary() const;
  // The step that was planned or followed last; nothing: none was planned.
  [[nodiscard]] std::optional<OnlineStep> planned_step() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
