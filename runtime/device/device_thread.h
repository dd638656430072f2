// One thread per accelerator, on which everything that Reprise does there runs: profiling, forward, recomputation and
// backward.
//
// Libraries below PyTorch keep what they chose per thread: cuDNN its benchmarked algorithms, cuBLAS its handle and
// workspace. On one thread a recomputed operator uses the algorithm of its first run, and the measured workspace is the
// one that is needed.
#pragma once

#include <c10/core/Device.h>

#include <functional>

namespace reprise {

// Runs `work` on the thread of `device`, with the caller's current stream and thread-local state, and waits for it;
// exceptions are passed on. On the CPU, and on that thread itself, runs it directly.
void on_device_thread(c10::Device device, const std::function<void()>& work);

}  // namespace reprise
