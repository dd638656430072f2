// What pieces of work do on a CUDA device, recorded once and replayed: a CUDA graph for each, with one pool of memory
// of their own.
//
//   CudaGraph graph(device);
//   graph.record({{forward, backward}});   // nothing runs
//   graph.begin(); ...                     // new numbers into the memory that `forward` reads
//   graph.replay(0); ... graph.replay(1); ... graph.end();   // results out of the memory that they write
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace reprise {

// Throws InputError where the device is not CUDA's, or this build does without CUDA graphs.
void check_cuda_graphs(c10::Device device);
[[nodiscard]] bool has_cuda_graphs(c10::Device device);
// "NVIDIA H200"; "CUDA" where this build does without CUDA's headers.
[[nodiscard]] std::string cuda_device_name(c10::Device device);

class CudaGraph {
 public:
  explicit CudaGraph(c10::Device device);
  ~CudaGraph();  // gives graph and pool back to the device, once it is done with them
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Once, on the thread of the device. What fails leaves device, allocator and generators usable.
  void record(std::span<const std::function<void()>> parts);

  // On the current stream. begin() lets it wait for the end() before, which may have been on another one.
  void begin();
  void replay(std::size_t part);
  void end();

  [[nodiscard]] std::int64_t pool_bytes() const;
  // Of its pool: in use at every replay, and counted by no allocator.
  [[nodiscard]] std::int64_t hidden_bytes() const;
  // Workspaces that the recording took from libraries, which will take them again.
  [[nodiscard]] std::int64_t cleared_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
