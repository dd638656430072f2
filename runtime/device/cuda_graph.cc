#include "runtime/device/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <optional>
#include <string>
#include <vector>

#include "reprise/error.h"
#include "runtime/device/device_thread.h"
#include "runtime/device/meter.h"

// Declared here because ATen/cuda/CUDAContextLight.h needs the headers of cuBLAS, cuSPARSE and cuSOLVER.
namespace at::cuda {
TORCH_CUDA_CPP_API void clearCublasWorkspaces();
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}  // namespace at::cuda

namespace reprise {
namespace {

namespace cache = c10::cuda::CUDACachingAllocator;

c10::impl::VirtualGuardImpl cuda() { return c10::impl::VirtualGuardImpl(at::kCUDA); }

// After a capture that failed, older releases of libtorch cannot draw random numbers until another capture succeeds.
void record_nothing(c10::Device device) {
  at::cuda::CUDAGraph graph;
  graph.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
  at::empty({1}, at::TensorOptions().device(device)).zero_();
  graph.capture_end();
}

// Makes cuBLAS allocate its workspace on the current stream again, outside of any step.
void multiply(c10::Device device) {
  const at::Tensor x = at::ones({64, 64}, at::TensorOptions().device(device));
  (void)at::addmm(x[0], x, x.mm(x));
}

}  // namespace

struct CudaGraph::State {
  explicit State(c10::Device on) : device(numbered(on)) {}

  c10::Device device;
  std::vector<std::unique_ptr<at::cuda::CUDAGraph>> graphs{};
  decltype(at::cuda::graph_pool_handle()) pool{};
  std::int64_t pool_bytes = 0;
  std::int64_t hidden_bytes = 0;
  std::int64_t cleared_bytes = 0;
  std::optional<c10::Event> done{};  // when the memory of the last replay is no longer in use

  void synchronize() const { cuda().synchronizeDevice(device.index()); }
  void capture(std::span<const std::function<void()>> parts);
  void abandon();
  void measure_pool();
};

void CudaGraph::State::capture(std::span<const std::function<void()>> parts) {
  const c10::StreamGuard on_a_stream_of_its_own(cuda().getStreamFromGlobalPool(device));
  pool = at::cuda::graph_pool_handle();
  for (const auto& work : parts) {
    graphs.push_back(std::make_unique<at::cuda::CUDAGraph>());
    try {
      graphs.back()->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      work();
      graphs.back()->capture_end();
    } catch (...) {
      abandon();
      throw;
    }
  }
}

// Cleans up after an error during a capture, as far as libtorch does not; what was captured before is dropped too.
void CudaGraph::State::abandon() {
  const auto quietly = [](const auto& work) {
    try {
      work();
    } catch (const std::exception&) {  // NOLINT: the first error says more
    }
  };
  bool ended = false;
  quietly([&] {
    graphs.back()->capture_end();
    ended = true;
  });
  if (!ended) {
    quietly([&] { cache::endAllocateToPool(device.index(), pool); });
    quietly([&] { cache::releasePool(device.index(), pool); });
  }
  for (const auto& graph : graphs) quietly([&] { graph->reset(); });
  if (!ended) (void)graphs.back().release();  // allocators may still ask it whether a stream belongs to its capture
  quietly([&] { record_nothing(device); });
  graphs.clear();
  quietly([&] { synchronize(); });
  quietly([] { cache::emptyCache(); });
}

void CudaGraph::State::measure_pool() {
  pool_bytes = hidden_bytes = 0;
  for (const auto& segment : cache::snapshot(pool).segments) {
    if (segment.owner_private_pool_id != pool || segment.device != device.index()) continue;
    pool_bytes += static_cast<std::int64_t>(segment.total_size);
    hidden_bytes += static_cast<std::int64_t>(segment.total_size) - static_cast<std::int64_t>(segment.allocated_size);
  }
}

void check_cuda_graphs(c10::Device device) {
  if (!device.is_cuda()) {
    throw InputError("the step is on " + device.str() +
                     ", and CUDA graphs need a CUDA device: plan it with CudaGraphs::kOff");
  }
  // The size of libtorch's graphs depends on it.
  const long libtorch = at::detail::getCUDAHooks().versionCUDART();
  if (libtorch / 1000 == CUDART_VERSION / 1000 && libtorch <= CUDART_VERSION) return;
  throw InputError(
      "Reprise was built with the headers of CUDA " + std::to_string(CUDART_VERSION) + ", libtorch with those of " +
      std::to_string(libtorch) +
      ": build it with the latter (-DREPRISE_CUDA_INCLUDE_DIR=...), or plan the step with CudaGraphs::kOff");
}

bool has_cuda_graphs(c10::Device device) { return device.is_cuda(); }

std::string cuda_device_name(c10::Device device) {
  return static_cast<const char*>(at::cuda::getDeviceProperties(numbered(device).index())->name);
}

CudaGraph::CudaGraph(c10::Device device) {
  check_cuda_graphs(device);
  state_ = std::make_unique<State>(device);
}

CudaGraph::~CudaGraph() {
  if (state_->graphs.empty()) return;
  try {
    state_->synchronize();  // their memory returns to the device at once
    for (const auto& graph : state_->graphs) graph->reset();
    state_->graphs.clear();
    cache::emptyCache();
  } catch (const std::exception&) {  // NOLINT: the process ends, or the device has failed
  }
}

void CudaGraph::record(std::span<const std::function<void()>> parts) {
  State& state = *state_;
  if (!state.graphs.empty()) throw InternalError("a CUDA graph can be recorded only once");
  on_device_thread(state.device, [&] {
    const c10::DeviceGuard on_device(state.device);
    state.synchronize();
    // cuBLAS keeps a workspace for every stream and frees it when any graph of that stream is freed, so it has to lie
    // in the pool that uses it.
    std::int64_t before = read_meter(state.device).allocated_bytes;
    at::cuda::clearCublasWorkspaces();
    state.cleared_bytes = before - read_meter(state.device).allocated_bytes;
    cache::emptyCache();
    state.capture(parts);
    at::cuda::clearCublasWorkspaces();
    state.measure_pool();
    before = read_meter(state.device).allocated_bytes;
    multiply(state.device);
    state.cleared_bytes -= read_meter(state.device).allocated_bytes - before;
  });
}

void CudaGraph::begin() {
  if (state_->done) state_->done->block(cuda().getStream(state_->device));
}

void CudaGraph::replay(std::size_t part) { state_->graphs[part]->replay(); }

void CudaGraph::end() {
  if (!state_->done) state_->done.emplace(at::kCUDA);
  state_->done->record(cuda().getStream(state_->device));
}

std::int64_t CudaGraph::pool_bytes() const { return state_->pool_bytes; }
std::int64_t CudaGraph::hidden_bytes() const { return state_->hidden_bytes; }
std::int64_t CudaGraph::cleared_bytes() const { return state_->cleared_bytes; }

}  // namespace reprise
