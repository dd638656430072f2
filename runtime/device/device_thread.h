// One thread per accelerator, on which everything of Reprise runs there: profiling, forward, recomputation, backward.
//
// Libraries below PyTorch keep what they chose per thread: cuDNN its benchmarked algorithms, cuBLAS its handle and
// workspace. On one thread a recomputed operator takes the algorithm of its first run, and the workspace that was
// measured is the one that is needed.
#pragma once

#include <c10/core/Device.h>

#include <functional>

namespace reprise {

// Runs `work` on the thread of `device`, with the caller's current stream and thread-local state, and waits for it; an
// exception comes through. On the CPU, and on that thread itself, runs it where it is.
void on_device_thread(c10::Device device, const std::function<void()>& work);

}  // namespace reprise
