// Runs several threads that start at the same moment.
#pragma once

#include <barrier>
#include <thread>
#include <vector>

namespace reprise::test {

// Calls work(0), work(1), ..., each on a thread of its own, and waits for all of them.
template <typename Work>
void together(int count, const Work& work) {
  std::barrier start(count);
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
}

}  // namespace reprise::test
