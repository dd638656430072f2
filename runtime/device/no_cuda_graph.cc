// In the place of cuda_graph.cc, where libtorch or the headers of CUDA's runtime have no CUDA.
#include "reprise/error.h"
#include "runtime/device/cuda_graph.h"

namespace reprise {
namespace {

[[noreturn]] void refuse() { throw InternalError("this build has no CUDA graphs"); }

}  // namespace

void check_cuda_graphs(c10::Device device) {
  if (!device.is_cuda()) {
    throw InputError("the step is on " + device.str() +
                     ", and CUDA graphs need a CUDA device: plan it with CudaGraphs::kOff");
  }
  throw InputError(
      "Reprise was built without CUDA graphs: it found no CUDA in libtorch, or no cuda_runtime.h. Build it with both "
      "(the configuration says which it found), or plan the step with CudaGraphs::kOff");
}

bool has_cuda_graphs(c10::Device /*device*/) { return false; }
std::string cuda_device_name(c10::Device /*device*/) { return "CUDA"; }

struct CudaGraph::State {};

CudaGraph::CudaGraph(c10::Device device) {
  check_cuda_graphs(device);
  refuse();
}
CudaGraph::~CudaGraph() = default;
void CudaGraph::record(std::span<const std::function<void()>> /*parts*/) { refuse(); }
void CudaGraph::begin() { refuse(); }
void CudaGraph::replay(std::size_t /*part*/) { refuse(); }
void CudaGraph::end() { refuse(); }
std::int64_t CudaGraph::pool_bytes() const { refuse(); }
std::int64_t CudaGraph::hidden_bytes() const { refuse(); }
std::int64_t CudaGraph::cleared_bytes() const { refuse(); }

}  // namespace reprise
