// What the online mode knows of each thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>

namespace reprise::online {

struct Thread {
  int depth = 0;                            // calls inside calls: only the outermost is noted
  std::int64_t aside_ns = 0;                // spent on taking memory away and bringing it back, ever
  std::string refusal;                      // why the latest request of the outermost call failed
  const c10::OperatorHandle* op = nullptr;  // the outermost call
};
inline thread_local Thread this_thread;

// While this object exists, calls on this thread are parts of another one.
class Inside {
 public:
  explicit Inside(const c10::OperatorHandle* op = nullptr) : op_before_(this_thread.op) {
    ++this_thread.depth;
    if (op != nullptr) this_thread.op = op;
  }
  ~Inside() {
    --this_thread.depth;
    this_thread.op = op_before_;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const c10::OperatorHandle* op_before_;
};

}  // namespace reprise::online
