#include "torch/profile.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "torch/call_guards.h"
#include "torch/executor.h"
#include "torch/generator.h"
#include "torch/meter.h"

namespace reprise {
namespace {

class Operands {
 public:
  Operands(const Program& program, const Call& call) : call_(call) {
    for (const Argument& argument : call.arguments) {
      for (const auto& use : argument.tensors) {
        if (use) reserve(*use, program.values[index(use->value)].bytes);
      }
    }
    for (auto& [value, need] : needs_) {
      at::Tensor bytes =
          at::empty({std::max<std::int64_t>(need.bytes, 1)}, at::TensorOptions(at::kByte).device(program.device));
      fill(bytes, need.dtype);
      bases_.emplace(value, bytes);
    }
  }

  [[nodiscard]] std::vector<c10::IValue> stack() const {
    std::vector<c10::IValue> result;
    for (const Argument& argument : call_.arguments) result.push_back(value_of(argument));
    return result;
  }
  [[nodiscard]] bool owns(const at::Tensor& tensor) const {
    return std::ranges::any_of(bases_,
                               [&](const auto& base) { return base.second.storage().is_alias_of(tensor.storage()); });
  }

 private:
  struct Need {
    std::int64_t bytes = 0;
    at::ScalarType dtype = at::ScalarType::Float;
  };
  void reserve(const TensorUse& use, std::int64_t storage_bytes) {
    Need& need = needs_[use.value];
    need.bytes = std::max({need.bytes, extent_bytes(use.geometry), storage_bytes});
    need.dtype = use.geometry.dtype;
  }
  static void fill(at::Tensor& bytes, at::ScalarType dtype) {
    if (!at::isFloatingType(dtype)) {
      bytes.zero_();
      return;
    }
    const auto count = static_cast<std::int64_t>(bytes.numel()) / static_cast<std::int64_t>(c10::elementSize(dtype));
    if (count == 0) return;
    view_of(bytes, {.dtype = dtype, .sizes = {count}, .strides = {1}}).fill_(0.5);
  }
  [[nodiscard]] at::Tensor tensor(const TensorUse& use) const { return view_of(bases_.at(use.value), use.geometry); }
  [[nodiscard]] c10::IValue value_of(const Argument& argument) const {
    switch (argument.kind) {
      case Argument::Kind::kConstant:
        return argument.constant;
      case Argument::Kind::kTensor:
        return argument.tensors.front() ? c10::IValue(tensor(*argument.tensors.front())) : c10::IValue();
      case Argument::Kind::kTensorList: {
        c10::List<at::Tensor> list;
        for (const auto& use : argument.tensors) list.push_back(tensor(*use));
        return list;
      }
      case Argument::Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& use : argument.tensors) list.push_back(use ? std::optional(tensor(*use)) : std::nullopt);
        return list;
      }
    }
    return {};
  }

  const Call& call_;
  std::map<ValueId, Need> needs_;
  std::map<ValueId, at::Tensor> bases_;
};

std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& results) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& result : results) {
    if (result.isTensor()) tensors.push_back(result.toTensor());
    if (!result.isTensorList()) continue;
    for (const at::Tensor& tensor : result.toTensorVector()) tensors.push_back(tensor);
  }
  return tensors;
}

std::int64_t result_bytes(const std::vector<at::Tensor>& results, const Operands& operands) {
  std::set<const void*> seen;
  std::int64_t total = 0;
  for (const at::Tensor& tensor : results) {
    if (!tensor.defined() || operands.owns(tensor)) continue;
    if (!seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    total += static_cast<std::int64_t>(tensor.storage().nbytes());
  }
  return total;
}

std::vector<std::optional<Layout>> layouts(const std::vector<at::Tensor>& results) {
  std::vector<std::optional<Layout>> list;
  for (const at::Tensor& tensor : results) {
    list.emplace_back();
    if (!tensor.defined()) continue;
    list.back() = {.geometry = geometry_of(tensor),
                   .storage_bytes = static_cast<std::int64_t>(tensor.storage().nbytes())};
  }
  return list;
}

// Time of `run` on the device's own clock.
template <typename Run>
std::int64_t time_of(at::Device device, Run run) {
  if (device.is_cpu()) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
  }
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  stream.synchronize();
  begin.record(stream);
  run();
  end.record(stream);
  end.synchronize();
  return static_cast<std::int64_t>(begin.elapsedTime(end) * 1e6);
}

}  // namespace

Measurement measure(const Program& program, OpId op, std::int64_t enough_ns) {
  const Call& call = program.ops[index(op)].call.value();
  const at::Device device = program.device;
  const CallGuards guards(device);
  const GeneratorReplay generator(device, generator_state(device));
  const Operands operands(program, call);

  Measurement result;
  std::vector<std::int64_t> times;
  std::int64_t spent = 0;
  for (int run = 0; run < 4 || (spent < enough_ns && run < 100); ++run) {
    std::vector<c10::IValue> stack = operands.stack();
    reset_meter_peak(device);
    const std::int64_t before = read_meter(device).allocated_bytes;
    const std::int64_t time = time_of(device, [&] { call.op.callBoxed(stack); });
    spent += time;
    if (run == 0) continue;  // libraries warm up
    times.push_back(time);
    const std::int64_t peak = read_meter(device).peak_bytes;
    const std::vector<at::Tensor> tensors = tensors_of(stack);
    result.workspace_bytes = std::max(result.workspace_bytes, peak - before - result_bytes(tensors, operands));
    result.outputs = layouts(tensors);
  }
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  result.time_ns = times[times.size() / 2];
  return result;
}

}  // namespace reprise
