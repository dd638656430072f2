#include "runtime/costs/measure.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "reprise/torch/errors.h"
#include "runtime/device/device_thread.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/kernels/call_guards.h"
#include "runtime/kernels/kernel.h"
#include "runtime/kernels/launch.h"
#include "runtime/program/operator_facts.h"
#include "runtime/program/tensor_memory.h"

namespace reprise {
namespace {

// In bytes. Even empty operands get this much memory, because some operators look at whole elements.
constexpr std::int64_t kLargestElement = 16;

// Whether the call takes the pivots of a factored matrix, which count its rows from one.
[[nodiscard]] bool has_pivots(const Call& call) {
  constexpr std::array kReaders = {"aten::lu_unpack", "aten::linalg_lu_solve", "aten::linalg_ldl_solve"};
  return std::ranges::find(kReaders, call.op.operator_name().name) != kReaders.end();
}

class Operands {
 public:
  Operands(const Program& program, const Call& call) : call_(call) {
    for_each_use(call, [&](const TensorUse& use) { reserve(use, program.values[index(use.value)].bytes); });
    const std::map<ValueId, std::int64_t> samples = samples_of(call);
    for (auto& [value, need] : needs_) {
      const at::Device device = need.elsewhere ? at::Device(at::kCPU) : program.device;
      at::Tensor bytes =
          at::empty({std::max(need.bytes, kLargestElement)}, at::TensorOptions(at::kByte).device(device));
      const auto sample = samples.find(value);
      fill(bytes, need.dtype, sample == samples.end() ? 0 : sample->second);
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
    bool elsewhere = false;  // not on the budgeted device, so its bytes do not count
  };
  void reserve(const TensorUse& use, std::int64_t storage_bytes) {
    Need& need = needs_[use.value];
    need.bytes = std::max({need.bytes, extent_bytes(use.geometry), storage_bytes});
    need.dtype = use.geometry.dtype;
    need.elsewhere = storage_bytes == 0 && extent_bytes(use.geometry) > 0;
  }
  void fill(at::Tensor& bytes, at::ScalarType dtype, std::int64_t sample) const {
    bytes.zero_();  // Any index can be 0, unless there is a sample.
    if (dtype == at::kInt && has_pivots(call_)) sample = 1;
    if (!at::isFloatingType(dtype) && sample == 0) return;
    const auto count = static_cast<std::int64_t>(bytes.numel()) / static_cast<std::int64_t>(c10::elementSize(dtype));
    at::Tensor elements = view_of(bytes, {.dtype = dtype, .sizes = {count}, .strides = {1}});
    elements.fill_(at::isFloatingType(dtype) ? at::Scalar(0.5) : at::Scalar(sample));
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

std::int64_t storage_bytes(const at::Tensor& tensor) {
  return granted_bytes(tensor.device(), static_cast<std::int64_t>(tensor.storage().nbytes()));
}

std::int64_t result_bytes(const std::vector<at::Tensor>& results, const Operands& operands, at::Device device) {
  std::set<const void*> seen;
  std::int64_t total = 0;
  for (const at::Tensor& tensor : results) {
    if (!tensor.defined() || tensor.device().type() != device.type() || operands.owns(tensor)) continue;
    if (!seen.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    total += storage_bytes(tensor);
  }
  return total;
}

std::vector<std::optional<Layout>> layouts(const std::vector<at::Tensor>& results) {
  std::vector<std::optional<Layout>> list;
  for (const at::Tensor& tensor : results) {
    list.emplace_back();
    if (!tensor.defined()) continue;
    list.back() = {
        .geometry = geometry_of(tensor), .storage_bytes = storage_bytes(tensor), .device = tensor.device().type()};
  }
  return list;
}

using Times = std::vector<std::int64_t>;

std::int64_t median(Times times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

std::int64_t timed(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
}

// Two samples are enough if they agree. Otherwise there are at least five, and they go on until `enough_ns` are spent.
bool suffice(const Times& times, std::int64_t enough_ns) {
  const auto [least, most] = std::ranges::minmax(times);
  const std::int64_t spent = std::accumulate(times.begin(), times.end(), std::int64_t{0});
  return spent >= enough_ns && (times.size() >= 5 || most - least <= least / 20);
}

// `first` is the time of an earlier run.
std::int64_t time_on_cpu(std::int64_t first, const std::function<void()>& run, std::int64_t enough_ns) {
  Times times = {first, timed(run)};
  while (times.size() < 100 && !suffice(times, enough_ns)) times.push_back(timed(run));
  return median(std::move(times));
}

// Measured by the device's own clock. All runs are queued before the first one is waited for, so that the device does
// not idle.
std::int64_t time_on_device(at::Device device, const std::function<void()>& run, std::int64_t enough_ns) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream stream = guard.getStream(device);
  const auto queue = [&](std::size_t runs) {
    std::vector<c10::Event> marks;
    for (std::size_t i = 0; i <= runs; ++i) marks.emplace_back(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    marks.front().record(stream);
    for (std::size_t i = 0; i < runs; ++i) {
      run();
      marks[i + 1].record(stream);
    }
    stream.synchronize();
    Times times;
    for (std::size_t i = 0; i < runs; ++i) {
      times.push_back(static_cast<std::int64_t>(marks[i].elapsedTime(marks[i + 1]) * 1e6));
    }
    return times;
  };
  const std::int64_t guess = std::max<std::int64_t>(1, median(queue(2)));
  return median(queue(static_cast<std::size_t>(std::clamp<std::int64_t>(enough_ns / guess, 3, 30))));
}

// Measures the highest memory above operands and results, and the layouts of the results. Returns whether something
// that the call has allocated is still there.
bool look_at_memory(at::Device device, const Call& call, const Operands& operands, Measurement& result) {
  std::vector<c10::IValue> stack = operands.stack();
  reset_meter_peak(device);
  const std::int64_t before = read_meter(device).allocated_bytes;
  Kernel(call).run(stack);
  const std::int64_t peak = read_meter(device).peak_bytes;
  std::vector<at::Tensor> tensors = tensors_of(stack);
  result.workspace_bytes = std::max(result.workspace_bytes, peak - before - result_bytes(tensors, operands, device));
  result.outputs = layouts(tensors);
  stack.clear();
  tensors.clear();
  return read_meter(device).allocated_bytes > before;
}

void try_out(const Call& call, const std::function<void()>& run) {
  if (ends_process_on_made_up_numbers(call.op)) {
    throw Unsupported("cannot measure " + call.op.operator_name().name + ": " + facts_of(call).refusal);
  }
  try {
    run();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw Unsupported("cannot measure " + call.op.operator_name().name + ": it does not run on made-up numbers (" +
                      error.what_without_backtrace() + "). Move it out of the model");
  }
}

// One call with made-up operands, as it runs in a step.
class Trial {
 public:
  Trial(const Program& program, OpId op)
      : call_(program.ops[index(op)].call.value()), device_(program.device), operands_(program, call_) {}

  void run() const {
    std::vector<c10::IValue> stack = operands_.stack();
    Kernel(call_).run(stack);
  }
  // Libraries choose algorithms and allocate what they keep.
  void warm_up() const {
    try_out(call_, [&] { run(); });
  }
  bool look(Measurement& result) const { return look_at_memory(device_, call_, operands_, result); }
  // The first run is enough on the CPU, unless a library keeps what it has allocated.
  void look_once(Measurement& result) const {
    bool keeps = false;
    try_out(call_, [&] { keeps = look(result); });
    if (!keeps) return;
    result = {};
    look(result);
  }

 private:
  const Call& call_;
  at::Device device_;
  Operands operands_;
};

void try_op(const Program& program, OpId op, const std::function<void(const Trial&)>& then) {
  on_device_thread(program.device, [&] {
    const CallGuards guards(program.device);
    const GeneratorReplay generator(program.device, generator_state(program.device));
    then(Trial(program, op));
  });
}

}  // namespace

Measurement measure(const Program& program, OpId op, std::int64_t enough_ns) {
  Measurement result;
  try_op(program, op, [&](const Trial& trial) {
    trial.warm_up();
    const std::int64_t first = timed([&] { trial.look(result); });
    const auto run = [&] { trial.run(); };
    if (program.device.is_cpu()) {
      result.time_ns = time_on_cpu(first, run, enough_ns);
    } else {
      trial.look(result);  // CUDA's libraries may choose another algorithm at their second run
      result.time_ns = time_on_device(program.device, run, enough_ns);
    }
  });
  return result;
}

Measurement measure_memory(const Program& program, OpId op) {
  Measurement result;
  try_op(program, op, [&](const Trial& trial) {
    if (program.device.is_cpu()) return trial.look_once(result);
    trial.warm_up();
    trial.look(result);
    trial.look(result);
  });
  return result;
}

}  // namespace reprise
