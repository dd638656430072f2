#include "runtime/costs/environment.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <sys/utsname.h>
#include <torch/version.h>

#include "runtime/device/cuda_graph.h"

namespace reprise {
namespace {

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

std::string machine() {
  utsname names{};
  return uname(&names) == 0 ? static_cast<const char*>(names.machine) : "unknown";
}

std::string tf32(at::Float32Op op) {
  return at::precision2str(at::globalContext().float32Precision(at::Float32Backend::CUDA, op));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> environment(c10::Device device) {
  const at::Context& context = at::globalContext();
  std::vector<std::pair<std::string, std::string>> facts{
      {"reprise", REPRISE_VERSION},
      {"torch", TORCH_VERSION},
      {"device", c10::DeviceTypeName(device.type(), /*lower_case=*/true)},
      {"deterministic", yes_or_no(context.deterministicAlgorithms())},
  };
  const auto add = [&](const char* name, std::string value) { facts.emplace_back(name, std::move(value)); };
  if (device.is_cuda()) {
    add("name", cuda_device_name(device));
    add("cudnn", std::to_string(at::detail::getCUDAHooks().versionRuntimeCuDNN()));
    add("benchmark", yes_or_no(context.benchmarkCuDNN()));
    add("cudnn_deterministic", yes_or_no(context.deterministicCuDNN()));
    add("matmul_precision", tf32(at::Float32Op::MATMUL));
    add("convolution_precision", tf32(at::Float32Op::CONV));
  } else {
    add("name", machine());
    add("capability", at::get_cpu_capability());
    add("threads", std::to_string(at::get_num_threads()));
    add("mkldnn", yes_or_no(context.userEnabledMkldnn()));
  }
  return facts;
}

}  // namespace reprise
