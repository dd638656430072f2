#include <pybind11/functional.h>

#include "runtime/costs/link.h"
#include "runtime/device/arena.h"
#include "runtime/device/generator.h"
#include "runtime/device/host_link.h"
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
  module.def("user_peak_bytes", &user_peak_bytes,
             "The peak since reset_user_peak, which steps do not reset on the CPU.");
  module.def("reset_user_peak", &reset_user_peak);
  module.def("granted_bytes", &granted_bytes, "What a request for so many bytes counts as.");
  module.def(
      "storage_bytes",
      [](const std::vector<at::Tensor>& tensors, at::Device device) { return storage_bytes(tensors, device); },
      "Bytes of the distinct storages of these tensors on the device, and of their gradients.");
  module.def("poison_arenas", &poison_arenas, "For tests: fills memory of arenas with ones when it is freed.");
  module.def(
      "link_of",
      [](at::Device device) {
        const Link link = link_of(device);
        return std::tuple(link.down_bytes_per_s, link.up_bytes_per_s, link.both_ways);
      },
      "The rates of the link to the host's memory, down and up in bytes per second, and whether it goes both ways at "
      "once.");
  module.def(
      "planned_link",
      [](std::int64_t down_bytes_per_s, std::int64_t up_bytes_per_s) {
        const Link link = planned_link({.down_bytes_per_s = down_bytes_per_s, .up_bytes_per_s = up_bytes_per_s});
        return std::pair(link.down_bytes_per_s, link.up_bytes_per_s);
      },
      py::arg("down_bytes_per_s"), py::arg("up_bytes_per_s"), "The rates that plans are made for.");
  module.def(
      "delay_copies",
      [](py::function delay) {
        delay_copies([delay] {
          const py::gil_scoped_acquire gil;
          delay();
        });
      },
      "For tests: what is called on the stream of a copy between the device and the host before each of them.");
  module.def(
      "repeat_copies", &repeat_copies, py::arg("times"),
      "For tests and benchmarks: every copy between the device and the host is made so many times, so that the link "
      "carries that part of what it does.");
  module.def("fail_allocation", &fail_allocation, "For tests: the nth CPU allocation from now on fails.");
  module.def("generator_state_bytes", &generator_state_bytes);
}

}  // namespace reprise::bindings
