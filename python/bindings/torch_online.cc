#include <torch/csrc/Exceptions.h>

#include "capsule.h"
#include "reprise/torch/online.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

// An error that PyTorch's functions pass on to Python as it is; they turn others into a RuntimeError.
[[noreturn]] void raise_budget_exceeded(const std::string& message) {
  const py::gil_scoped_acquire gil;
  PyErr_SetString(py::module_::import("reprise.errors").attr("BudgetExceeded").ptr(), message.c_str());
  python_error error;
  error.persist();
  throw error;
}

std::unique_ptr<Online> online(std::int64_t budget_bytes, at::Device device, const std::vector<at::Tensor>& older,
                               std::int64_t smallest_bytes, double most_recomputation, double planning_seconds) {
  return std::make_unique<Online>(OnlineOptions{.budget_bytes = budget_bytes,
                                                .device = device,
                                                .older = older,
                                                .smallest_bytes = smallest_bytes,
                                                .most_recomputation = most_recomputation,
                                                .planning_seconds = planning_seconds,
                                                .refuse = &raise_budget_exceeded});
}

std::optional<std::tuple<py::capsule, py::capsule, py::capsule>> planned_step(const Online& online) {
  std::optional<OnlineStep> found = online.planned_step();
  if (!found) return std::nullopt;
  return std::tuple(to_capsule(std::move(found->step.graph)), to_capsule(std::move(found->step.costs)),
                    to_capsule(std::move(found->plan)));
}

}  // namespace

void bind_online(py::module_& module) {
  module.def(
      "online_is_available", [](const at::Device& device) { return online_is_available(device.type()); },
      py::arg("device"), "Whether the online mode works on the device.");
  py::class_<OnlineSummary>(module, "OnlineSummary", "What an online mode has done so far.")
      .def_readonly("calls", &OnlineSummary::calls)
      .def_readonly("evictions", &OnlineSummary::evictions)
      .def_readonly("repeated_calls", &OnlineSummary::repeated_calls)
      .def_readonly("call_ns", &OnlineSummary::call_ns)
      .def_readonly("recompute_ns", &OnlineSummary::recompute_ns)
      .def_readonly("peak_bytes", &OnlineSummary::peak_bytes)
      .def_readonly("plain_peak_bytes", &OnlineSummary::plain_peak_bytes)
      .def_readonly("steps", &OnlineSummary::steps)
      .def_readonly("followed_steps", &OnlineSummary::followed_steps)
      .def_readonly("departures", &OnlineSummary::departures)
      .def_readonly("scripts", &OnlineSummary::scripts)
      .def_readonly("unplanned_evictions", &OnlineSummary::unplanned_evictions)
      .def_readonly("planning_seconds", &OnlineSummary::planning_seconds);
  py::class_<Online>(module, "Online", "A budget for code that is not captured, until end() is called.")
      .def(py::init(&online), py::arg("budget_bytes"), py::arg("device"), py::arg("older"), py::arg("smallest_bytes"),
           py::arg("most_recomputation"), py::arg("planning_seconds"))
      .def("end", &Online::end, py::call_guard<py::gil_scoped_release>())
      .def("set_budget", &Online::set_budget, py::arg("budget_bytes"))
      .def_property_readonly("summary", &Online::summary)
      .def("planned_step", &planned_step,
           "Graph, costs and plan of the step that was planned or followed last, in capsules.");
}

}  // namespace reprise::bindings
