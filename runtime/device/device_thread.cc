#include "runtime/device/device_thread.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/device/meter.h"

namespace reprise {
namespace {

class DeviceThread {
 public:
  DeviceThread() {
    std::thread([this] { serve(); }).detach();  // lives as long as the process: nothing could stop it safely at its end
  }

  void run(const std::function<void()>& work) {
    const std::lock_guard one_caller(callers_);
    std::unique_lock lock(mutex_);
    error_ = nullptr;
    work_ = &work;
    changed_.notify_all();
    changed_.wait(lock, [this] { return work_ == nullptr; });
    // The error is not kept, because what was thrown may hold tensors.
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  [[nodiscard]] bool is_current() const { return std::this_thread::get_id() == id_; }

 private:
  [[noreturn]] void serve() {
    std::unique_lock lock(mutex_);
    id_ = std::this_thread::get_id();
    while (true) {
      changed_.wait(lock, [this] { return work_ != nullptr; });
      lock.unlock();
      std::exception_ptr error;
      try {
        (*work_)();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex callers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;
  std::atomic<std::thread::id> id_;
};

DeviceThread& thread_of(c10::Device device) {
  static std::mutex mutex;
  static auto* threads = new std::map<c10::Device, DeviceThread, decltype([](c10::Device a, c10::Device b) {
                                        return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
                                      })>;
  const std::lock_guard lock(mutex);
  return (*threads)[device];
}

}  // namespace

void on_device_thread(c10::Device device, const std::function<void()>& work) {
  if (device.is_cpu()) return work();
  const c10::impl::VirtualGuardImpl guard(device.type());
  device = numbered(device);
  DeviceThread& thread = thread_of(device);
  if (thread.is_current()) return work();
  const c10::Stream stream = guard.getStream(device);
  const at::ThreadLocalState state;
  thread.run([&] {
    const at::ThreadLocalStateGuard same_state(state);
    const c10::StreamGuard same_stream(stream);
    work();
  });
}

}  // namespace reprise
