// reprise._core: the planner for Python, without torch.
#include <pybind11/pybind11.h>

PYBIND11_MODULE(_core, module) { module.attr("__version__") = REPRISE_VERSION; }
