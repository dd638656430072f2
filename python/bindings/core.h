// The parts of reprise._core, one file for one or a few headers of the library: conversions and docstrings only.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "reprise/costs.h"
#include "reprise/graph.h"

namespace reprise::bindings {

namespace py = pybind11;

// Both are frozen and therefore shared. They are held without const because pybind11's holders are, but no binding
// changes them.
using GraphClass = py::class_<Graph, std::shared_ptr<Graph>>;
using CostsClass = py::class_<Costs, std::shared_ptr<Costs>>;

void bind_graph(py::module_& module);   // graph.h, costs.h, papers.h and their text
void bind_plan(py::module_& module);    // plan.h, lives.h, validate.h, simulate.h and the plan's text
void bind_solve(py::module_& module);   // solve.h
void bind_report(py::module_& module);  // report.h

template <typename Id>
py::object id_or_none(Id id, Id none) {
  if (id == none) return py::none();
  return py::int_(index(id));
}

template <typename Id>
py::list id_list(std::span<const Id> ids) {
  py::list list(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) list[i] = index(ids[i]);
  return list;
}

}  // namespace reprise::bindings
