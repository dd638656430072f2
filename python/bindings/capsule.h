// How graphs, costs and plans pass from one extension module to the other, which may be built with another pybind11.
//
// A capsule named "reprise.Graph" holds a std::shared_ptr<const Graph>*, which it owns; costs and plans have such
// capsules too.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "reprise/costs.h"
#include "reprise/graph.h"
#include "reprise/plan.h"

namespace reprise::bindings {

namespace py = pybind11;

template <typename T>
inline constexpr const char* kCapsuleName = nullptr;
template <>
inline constexpr const char* kCapsuleName<Graph> = "reprise.Graph";
template <>
inline constexpr const char* kCapsuleName<Costs> = "reprise.Costs";
template <>
inline constexpr const char* kCapsuleName<Plan> = "reprise.Plan";

template <typename T>
py::capsule to_capsule(std::shared_ptr<const T> shared) {
  using Shared = std::shared_ptr<const T>;
  auto owned = std::make_unique<Shared>(std::move(shared));
  py::capsule capsule(owned.get(), kCapsuleName<T>, [](PyObject* object) {
    delete static_cast<Shared*>(PyCapsule_GetPointer(object, kCapsuleName<T>));
  });
  static_cast<void>(owned.release());  // the capsule has it now
  return capsule;
}

template <typename T>
py::capsule to_capsule(T value) {
  return to_capsule(std::make_shared<const T>(std::move(value)));
}

template <typename T>
std::shared_ptr<const T> from_capsule(const py::capsule& capsule) {
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsuleName<T>)) {
    throw py::value_error(std::string("not a capsule named '") + kCapsuleName<T> + "'");
  }
  return *capsule.get_pointer<std::shared_ptr<const T>>();
}

}  // namespace reprise::bindings
