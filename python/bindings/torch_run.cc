#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "reprise/error.h"
#include "runtime/device/device_thread.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/engine/executor.h"
#include "runtime/program/program_queries.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

Plan plan_from(const std::string& bytes) {
  Plan plan;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint32_t pair[2];
    std::memcpy(pair, bytes.data() + i, 8);
    plan.steps.push_back(pair[0] == 2 ? Step::free(ValueId{pair[1]}) : Step::compute(OpId{pair[1]}, pair[0] == 1));
  }
  return plan;
}

// Lets Ctrl-C end a step between two ops, ten times a second at most. Python sees signals on its main thread alone; a
// step on an accelerator runs on another one, and is queued in milliseconds.
std::function<void()> interrupted_by_signals(at::Device device) {
  if (!device.is_cpu()) return {};
  auto last = std::chrono::steady_clock::now();
  return [last]() mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::milliseconds(100)) return;
    last = now;
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  };
}

// Between forward and backward a step lives in the storage of an empty tensor that autograd saves: it dies when
// autograd drops it.
struct Pending {
  std::shared_ptr<const Executor> executor;
  StepState state;
};
void drop_pending(void* pending) { delete static_cast<Pending*>(pending); }

// An empty tensor that owns `context`.
at::Tensor owner_of(void* context, c10::DeleterFnPtr drop) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(context, context, drop, at::kCPU));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(at::kFloat));
  impl->set_sizes_contiguous({0});
  return at::Tensor(std::move(impl));
}

// Knows whether the handle made from it is alive: of a step that runs elsewhere.
struct Token {
  bool pending = false;
  void* address = nullptr;
};

at::Tensor handle_of(std::shared_ptr<Token> token) {
  auto* held = new std::shared_ptr<Token>(std::move(token));  // NOLINT: the tensor owns it
  (*held)->pending = true;
  (*held)->address = held;
  return owner_of(held, [](void* context) {
    auto* dropped = static_cast<std::shared_ptr<Token>*>(context);
    (*dropped)->pending = false;
    delete dropped;
  });
}

Pending& pending_of(const at::Tensor& handle) {
  auto* pending = handle.storage().data_ptr().cast_context<Pending>(&drop_pending);
  if (pending == nullptr) {
    throw InputError(
        "this step is no more: the model was restored, compiled again or given a plan between its forward and its "
        "backward. Run backward first");
  }
  return *pending;
}

std::pair<std::vector<std::optional<at::Tensor>>, at::Tensor> run_forward(std::shared_ptr<const Executor> executor,
                                                                          const std::vector<at::Tensor>& inputs,
                                                                          std::shared_ptr<Trace> trace) {
  auto pending = std::make_unique<Pending>();
  pending->state.trace = std::move(trace);
  pending->executor = std::move(executor);
  const auto interrupted = interrupted_by_signals(pending->executor->program().device);
  const py::gil_scoped_release no_gil;
  auto outputs = pending->executor->forward(inputs, pending->state, interrupted);
  return {std::move(outputs), owner_of(pending.release(), &drop_pending)};
}

std::vector<std::optional<at::Tensor>> run_backward(const at::Tensor& handle,
                                                    const std::vector<std::optional<at::Tensor>>& given) {
  Pending& pending = pending_of(handle);
  std::vector<at::Tensor> seeds;
  for (const auto& seed : given) seeds.push_back(seed.value_or(at::Tensor()));
  const auto interrupted = interrupted_by_signals(pending.executor->program().device);
  const py::gil_scoped_release no_gil;
  return pending.executor->backward(seeds, pending.state, interrupted);
}

using Tensors = std::vector<std::optional<at::Tensor>>;

// The same contents in memory of their own, by few kernels.
Tensors copies_of(const Tensors& tensors) {
  const py::gil_scoped_release no_gil;
  const at::NoGradGuard no_grad;
  Tensors copies;
  std::vector<at::Tensor> from;
  std::vector<at::Tensor> to;
  for (const auto& tensor : tensors) {
    copies.emplace_back();
    if (!tensor) continue;
    copies.back() = at::empty_like(*tensor);
    from.push_back(*tensor);
    to.push_back(*copies.back());
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  return copies;
}

// On the device; nothing at positions that are not wanted, or not read.
Tensors empty_seeds(const Program& program, const std::set<std::size_t>& wanted) {
  Tensors seeds;
  for (std::size_t i = 0; i < program.seeds.size(); ++i) {
    const auto& use = program.seeds[i];
    seeds.emplace_back();
    if (!use || !wanted.contains(i)) continue;
    const at::TensorOptions options = at::TensorOptions(use->geometry.dtype).device(program.device);
    seeds.back() = at::empty_strided(use->geometry.sizes, use->geometry.strides, options);
  }
  return seeds;
}

std::vector<std::uint64_t> addresses_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::uint64_t> addresses;
  for (const at::Tensor& tensor : tensors) addresses.push_back(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()));
  return addresses;
}

std::vector<std::uint32_t> versions_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::uint32_t> versions;
  for (const at::Tensor& tensor : tensors) versions.push_back(version_of(tensor));
  return versions;
}

void bump_versions(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) bump_version(tensor);
}

// Of Python's: what it throws is caught where the interpreter's lock is held.
void call_on_device_thread(at::Device device, const py::function& work) {
  std::optional<py::error_already_set> error;
  {
    const py::gil_scoped_release no_gil;
    on_device_thread(device, [&] {
      const py::gil_scoped_acquire gil;
      try {
        work();
      } catch (const py::error_already_set& thrown) {
        error.emplace(thrown);
      }
    });
  }
  if (error) throw py::error_already_set(*error);
}

void bind_runs(py::module_& module) {
  py::class_<Trace, std::shared_ptr<Trace>>(module, "Trace", "What the allocator said at every step of a plan.")
      .def(py::init<>())
      .def_readonly("during_bytes", &Trace::during_bytes)
      .def_readonly("after_bytes", &Trace::after_bytes);
  py::class_<Executor, std::shared_ptr<Executor>>(module, "Executor", "Runs a program as planned.")
      .def(py::init([](std::shared_ptr<Program> program, const py::bytes& plan) {
             return std::make_shared<Executor>(std::move(program), plan_from(plan));
           }),
           py::arg("program"), py::arg("plan"))
      .def(
          "forward",
          [](const std::shared_ptr<Executor>& self, const std::vector<at::Tensor>& inputs,
             std::shared_ptr<Trace> trace) { return run_forward(self, inputs, std::move(trace)); },
          py::arg("inputs"), py::arg("trace") = nullptr,
          "(outputs, handle): the handle carries the step to backward().")
      .def_property_readonly(
          "watched_inputs",
          [](const Executor& self) {
            return inputs_with(self.program(), {self.watched().begin(), self.watched().end()});
          },
          "Positions of the inputs that backward reads.");
  module.def("backward", &run_backward, py::arg("handle"), py::arg("seeds"), "Gradients of the step in the handle.");
  py::class_<Token, std::shared_ptr<Token>>(module, "Token", "Knows whether the handle made from it is alive.")
      .def(py::init<>())
      .def_readonly("pending", &Token::pending)
      .def_property_readonly("address",
                             [](const Token& token) { return reinterpret_cast<std::uintptr_t>(token.address); });
  module.def("handle_of", &handle_of);
}

void bind_graphs(py::module_& module) {
  module.def("on_device_thread", &call_on_device_thread, py::arg("device"), py::arg("work"),
             "Calls `work` on the thread on which everything runs on that device.");
  module.def("copies_of", &copies_of);
  module.def("empty_seeds", &empty_seeds);
  module.def("addresses_of", &addresses_of);
  module.def("versions_of", &versions_of);
  module.def("bump_versions", &bump_versions);
}

void bind_memory(py::module_& module) {
  module.def("install_meter", &install_meter, "Begins to count what the CPU allocator hands out.");
  module.def("allocated_bytes", [](at::Device device) { return read_meter(device).allocated_bytes; });
  module.def("peak_bytes", [](at::Device device) { return read_meter(device).peak_bytes; });
  module.def("reserved_bytes", [](at::Device device) { return read_meter(device).reserved_bytes; });
  module.def("reset_peak", &reset_meter_peak);
  module.def("granted_bytes", &granted_bytes, "What a request for so many bytes counts as.");
  module.def("fail_allocation", &fail_allocation, "For tests: the nth CPU allocation from now on fails.");
  module.def("generator_state_bytes", &generator_state_bytes);
}

}  // namespace

void bind_executor(py::module_& module) {
  bind_runs(module);
  bind_graphs(module);
  bind_memory(module);
}

}  // namespace reprise::bindings
