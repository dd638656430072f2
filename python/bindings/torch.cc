#include "reprise/error.h"
#include "torch_parts.h"

namespace reprise::bindings {

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "Programs, their profile and their executor: the libtorch side of Reprise.";
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const InputError& input) {
      PyErr_SetString(PyExc_ValueError, input.what());
    }
  });
  bind_program(module);
  bind_executor(module);
  bind_files(module);
}

}  // namespace reprise::bindings
