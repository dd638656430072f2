// The parts of reprise._torch, one file for a few headers of the runtime: conversions and docstrings only.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "capsule.h"
#include "runtime/program/captured_step.h"
#include "runtime/program/family/size_table.h"

namespace reprise {
struct FoundPlan;
struct SessionOptions;
enum class UseSlices : std::uint8_t;
}  // namespace reprise

namespace reprise::bindings {

namespace py = pybind11;

void bind_program(py::module_& module);
void bind_books(py::module_& module);
void bind_forms(py::module_& module);
void bind_memory(py::module_& module);
void bind_session(py::module_& module);
void bind_files(py::module_& module);
void bind_kernels(py::module_& module);
void bind_online(py::module_& module);

// (dtype, sizes, strides, offset, bytes of storage, device) of a result; nothing: undefined.
using LayoutTuple = std::tuple<std::string, std::vector<std::int64_t>, std::vector<std::int64_t>, std::int64_t,
                               std::int64_t, std::string>;
using LayoutTuples = std::vector<std::optional<LayoutTuple>>;
[[nodiscard]] LayoutTuples layout_tuples(const ResultLayouts& layouts);
[[nodiscard]] std::map<std::string, LayoutTuples> layout_tuples(const KnownLayouts& known);

[[nodiscard]] CapturedStep captured_from(std::shared_ptr<Program> program,
                                         const std::map<std::uint32_t, std::string>& keys);
[[nodiscard]] CapturedStep captured_from(const py::tuple& captured);  // (program, keys)
[[nodiscard]] std::map<std::uint32_t, std::string> key_numbers(const CapturedStep& step);

// An expression over sizes: codes and numbers, operands first.
using Postfix = std::vector<std::pair<std::string, std::int64_t>>;
[[nodiscard]] SizeTable::Expression expression_from(const Postfix& postfix);
[[nodiscard]] Postfix postfix_of(const SizeTable::Expression& expression);

// True, False or "close".
[[nodiscard]] UseSlices slices_from(const py::object& value);

[[noreturn]] void throw_infeasible(const FoundPlan& found, const SessionOptions& options);

}  // namespace reprise::bindings
