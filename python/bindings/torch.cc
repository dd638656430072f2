#include <torch/csrc/utils/pybind.h>

#include "reprise/torch/errors.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

// An error of reprise.errors, by its name there.
py::object error_type(const char* name) { return py::module_::import("reprise.errors").attr(name); }

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const InfeasibleBudget& refusal) {
    const py::object type = error_type("InfeasibleBudget");
    const py::object made = type(refusal.what(), refusal.budget_bytes(), refusal.smallest_budget_bytes());
    PyErr_SetObject(type.ptr(), made.ptr());
  } catch (const BudgetExceeded& exceeded) {
    PyErr_SetString(error_type("BudgetExceeded").ptr(), exceeded.what());
  } catch (const Unsupported& unsupported) {
    PyErr_SetString(error_type("Unsupported").ptr(), unsupported.what());
  } catch (const RanksDiffer& different) {
    PyErr_SetString(error_type("RanksDiffer").ptr(), different.what());
  } catch (const ModifiedInPlace& modified) {
    PyErr_SetString(error_type("ModifiedInPlace").ptr(), modified.what());
  } catch (const InputError& input) {
    PyErr_SetString(PyExc_ValueError, input.what());
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "Programs, what they cost, and sessions that run them: the libtorch side of Reprise.";
  py::register_exception_translator(&translate);
  bind_program(module);
  bind_books(module);
  bind_forms(module);
  bind_memory(module);
  bind_session(module);
  bind_files(module);
  bind_kernels(module);
  bind_online(module);
}

}  // namespace reprise::bindings
