// Records what pieces of work do on a CUDA device once, and replays it: one CUDA graph for each piece, with one pool of
// memory for all.
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

// Throws InputError if the device is not a CUDA device, or if this build has no CUDA graphs.
void check_cuda_graphs(c10::Device device);
[[nodiscard]] bool has_cuda_graphs(c10::Device device);
// For example "NVIDIA H200"; "CUDA" if this build has no CUDA headers.
[[nodiscard]] std::string cuda_device_name(c10::Device device);

class CudaGraph {
 public:
  explicit CudaGraph(c10::Device device);
  ~CudaGraph();  // frees the graphs and the pool once the device no longer uses them
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // May be called once, on the thread of the device. After a failure the device, the allocator and the generators are
  // still usable.
  void record(std::span<const std::function<void()>> parts);

  // These run on the current stream. begin() makes it wait for the previous end(), which may have been on another
  // stream.
  void begin();
  void replay(std::size_t part);
  void end();

  [[nodiscard]] std::int64_t pool_bytes() const;
  // Bytes of its pool that are in use at every replay and that no allocator counts.
  [[nodiscard]] std::int64_t hidden_bytes() const;
  // Workspaces that libraries lost during the recording and will allocate again.
  [[nodiscard]] std::int64_t cleared_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace reprise
