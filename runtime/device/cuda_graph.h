// What a piece of work does on a CUDA device, recorded once and replayed: a CUDA graph, with a pool of memory of its
// own.
//
//   CudaGraph graph(device);
//   graph.record(work);                // nothing runs
//   graph.begin(); ...                 // new numbers into the memory that `work` reads
//   graph.replay(); ... graph.end();   // results out of the memory that it writes
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace reprise {

// Throws InputError where the device is not CUDA's, or this build does without CUDA graphs.
void check_cuda_graphs(c10::Device device);

class CudaGraph {
 public:
  explicit CudaGraph(c10::Device device);
  ~CudaGraph();  // gives graph and pool back to the device, once it is done with them
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Once, on the thread of the device. What fails leaves device, allocator and generators usable.
  void record(const std::function<void()>& work);

  // On the current stream. begin() lets it wait for the end() before, which may have been on another one.
  void begin();
  void replay();
  void end();

  // Of its pool: in use at every replay, and counted by no allocator.
  [[nodiscard]] std::int64_t hidden_bytes() const;
  // Workspaces that the recording took from libraries, which will take them again.
  [[nodiscard]] std::int64_t cleared_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
