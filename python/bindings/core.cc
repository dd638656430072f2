// reprise._core: the planner for Python, without torch. InputError is a std::invalid_argument, so a ValueError.
#include "core.h"

#include "reprise/io.h"

PYBIND11_MODULE(_core, module) {
  namespace py = pybind11;
  module.doc() = "Graphs of training steps, plans for them, and planners. It does not need torch.";
  module.attr("__version__") = REPRISE_VERSION;
  module.def("parse_bytes", &reprise::parse_bytes, py::arg("text"), "Bytes of '6GiB', '500MB', '1.5 GB' or '4096'.");
  module.def("format_bytes", &reprise::format_bytes, py::arg("bytes"), "Bytes for people: '5.86 GiB'.");
  reprise::bindings::bind_graph(module);
  reprise::bindings::bind_plan(module);
  reprise::bindings::bind_solve(module);
  reprise::bindings::bind_report(module);
}
