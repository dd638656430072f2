#include <pybind11/functional.h>

#include "runtime/device/arena.h"
#include "runtime/device/generator.h"
#include "runtime/device/meter.h"
#include "runtime/messages.h"
#include "runtime/session/ledger.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

// Exceptions of the Python functions are passed on as Python errors; the functions are called from code without the
// interpreter's lock.
void set_messages(py::function log, py::function progress) {
  MessageSinks sinks;
  sinks.log = [log = std::move(log)](Severity severity, const std::string& line) {
    const py::gil_scoped_acquire gil;
    log(static_cast<int>(severity), line);
  };
  sinks.progress = [progress = std::move(progress)](const std::string& what, std::size_t done, std::size_t total) {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    progress(what, done, total);
  };
  set_message_sinks(std::move(sinks));
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("set_messages", &set_messages, py::arg("log"), py::arg("progress"),
             "Where lines for a log go, by severity (0 debug, 1 info, 2 warning), and how far long work has come.");
  module.def("install_meter", &install_meter, "Begins to count what the CPU allocator hands out.");
  module.def("allocated_bytes", [](at::Device device) { return read_meter(device).allocated_bytes; });
  module.def("peak_bytes", [](at::Device device) { return read_meter(device).peak_bytes; });
  module.def("reserved_bytes", [](at::Device device) { return read_meter(device).reserved_bytes; });
  module.def("reset_peak", &reset_meter_peak);
  module.def("granted_bytes", &granted_bytes, "What a request for so many bytes counts as.");
  module.def(
      "storage_bytes",
      [](const std::vector<at::Tensor>& tensors, at::Device device) { return storage_bytes(tensors, device); },
      "Bytes of the distinct storages of these tensors on the device, and of their gradients.");
  module.def("poison_arenas", &poison_arenas, "For tests: fills memory of arenas with ones when it is freed.");
  module.def("fail_allocation", &fail_allocation, "For tests: the nth CPU allocation from now on fails.");
  module.def("generator_state_bytes", &generator_state_bytes);
}

}  // namespace reprise::bindings
