// reprise._torch: programs, their profile and their executor. Conversions only.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "runtime/program/program.h"

namespace reprise::bindings {

namespace py = pybind11;

void bind_program(py::module_& module);   // program.h and profile.h
void bind_executor(py::module_& module);  // executor.h, device_thread.h and meter.h
void bind_files(py::module_& module);     // program_io.h

}  // namespace reprise::bindings
