// Work that goes on in a thread of its own while steps run.
//
// It works on copies and does nothing but compute: files, messages and the step itself are left to whoever asks for the
// result.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace reprise {

template <typename Result>
class BackgroundTask {
 public:
  // `work` gets a function to call now and then. It says whether the time is over, and throws if nobody waits for the
  // result any more: putting one together would take time.
  using Work = std::function<Result(const std::function<bool()>& should_stop)>;
  BackgroundTask(Work work, double seconds) : process_(getpid()) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    std::packaged_task<Result()> task([this, work = std::move(work), end] {
      return work([this, end] {
        if (ended_) throw Ended();
        return Clock::now() > end;
      });
    });
    result_ = task.get_future();
    thread_ = std::thread(std::move(task));
  }
  // Ends the work; what it has found is lost.
  ~BackgroundTask() {
    ended_ = true;
    if (is_elsewhere()) {
      thread_.detach();  // there is no thread to wait for
    } else {
      thread_.join();
    }
  }
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Whether wait() would not have to wait, now or after so many seconds.
  [[nodiscard]] bool is_done(double seconds = 0) const {
    return result_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  }
  // Whether this is a copy in another process, which does not have the thread.
  [[nodiscard]] bool is_elsewhere() const { return getpid() != process_; }
  // Once. Throws what the work threw. REQUIRES: it is not elsewhere.
  [[nodiscard]] Result wait() { return result_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  class Ended : public std::exception {};

  const pid_t process_;
  std::atomic<bool> ended_ = false;
  std::future<Result> result_;
  std::thread thread_;
};

}  // namespace reprise
