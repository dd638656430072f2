#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "reprise/torch/errors.h"
#include "runtime/costs/cost_book.h"
#include "runtime/costs/environment.h"
#include "runtime/costs/roofline.h"
#include "runtime/files/program_text.h"
#include "runtime/program/collectives.h"
#include "runtime/program/eager_graph.h"
#include "runtime/program/program_queries.h"
#include "runtime/session/caller.h"
#include "runtime/session/options.h"
#include "runtime/session/plan_book.h"
#include "torch_parts.h"

namespace reprise::bindings {

// -- Captured steps and layouts on their way to Python and back.

std::map<std::uint32_t, std::string> key_numbers(const CapturedStep& step) {
  std::map<std::uint32_t, std::string> keys;
  for (const auto& [op, key] : step.layout_keys) keys.emplace(static_cast<std::uint32_t>(index(op)), key);
  return keys;
}

CapturedStep captured_from(std::shared_ptr<Program> program, const std::map<std::uint32_t, std::string>& keys) {
  CapturedStep step{.program = std::move(program)};
  for (const auto& [op, key] : keys) step.layout_keys.emplace(OpId{op}, key);
  return step;
}

CapturedStep captured_from(const py::tuple& captured) {
  return captured_from(captured[0].cast<std::shared_ptr<Program>>(),
                       captured[1].cast<std::map<std::uint32_t, std::string>>());
}

LayoutTuples layout_tuples(const ResultLayouts& layouts) {
  LayoutTuples list;
  for (const auto& layout : layouts) {
    list.emplace_back();
    if (!layout) continue;
    const Geometry& geometry = layout->geometry;
    list.back() = {std::string(detail::dtype_name(geometry.dtype)),
                   geometry.sizes,
                   geometry.strides,
                   geometry.offset,
                   layout->storage_bytes,
                   c10::DeviceTypeName(layout->device, /*lower_case=*/true)};
  }
  return list;
}

std::map<std::string, LayoutTuples> layout_tuples(const KnownLayouts& known) {
  std::map<std::string, LayoutTuples> tuples;
  for (const auto& [key, layouts] : known) tuples.emplace(key, layout_tuples(layouts));
  return tuples;
}

void throw_infeasible(const FoundPlan& found, const SessionOptions& options) {
  throw InfeasibleBudget(found.message, options.budget_bytes.value_or(0), found.smallest_budget_bytes);
}

namespace {

void bind_cost_book(py::module_& module) {
  using Calls = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;
  py::class_<CostBook>(module, "CostBook", "What calls cost on a device, from a file and by measuring.")
      .def(py::init<at::Device>(), py::arg("device"))
      .def_property_readonly(
          "calls",
          [](const CostBook& self) {
            Calls calls;
            for (const auto& [call, cost] : self.calls()) calls[call] = {cost.time_ns, cost.workspace_bytes};
            return calls;
          },
          "Signature -> time and workspace of every call measured so far.")
      .def_property_readonly("layouts", [](const CostBook& self) { return layout_tuples(self.layouts()); })
      .def_property_readonly("kept_bytes", &CostBook::kept_bytes);
  module.def(
      "measure_step",
      [](std::shared_ptr<Program> program, const std::map<std::uint32_t, std::string>& keys,
         const py::function& again) {
        const auto capture_again = [&](const KnownLayouts& layouts) {
          const py::gil_scoped_acquire gil;
          return captured_from(again(layout_tuples(layouts)).cast<py::tuple>());
        };
        CapturedStep step = captured_from(std::move(program), keys);
        Costs costs;
        {
          const py::gil_scoped_release no_gil;
          costs = measure_step(std::move(step), capture_again).costs;
        }
        return to_capsule(std::move(costs));
      },
      py::arg("program"), py::arg("layout_keys"), py::arg("capture_again"),
      "What the calls cost on the device. `capture_again` gets layouts and gives (program, layout_keys), until capture "
      "and device agree on how results lie in memory.");
  module.def("environment", &environment, py::arg("device"),
             "What the costs of a call depend on besides the call itself.");
  module.def(
      "roofline_ns",
      [](const Program& program, const std::string& device) {
        return roofline_ns(program, rates_of(at::Device(device).type()));
      },
      py::arg("program"), py::arg("device"),
      "By op, what a device of this kind would take; 0 for an op that is not a call.");
  module.def(
      "bare_costs", [](const Program& program) { return to_capsule(bare_costs(program)); },
      "Bytes of values, and workspaces of ops that are not calls; no times.");
}

void bind_forecasts(py::module_& module) {
  module.def(
      "first_costs",
      [](const Program& program) {
        Costs costs = bare_costs(program);
        Caller(program, /*is_user=*/true).apply(costs);
        return to_capsule(std::move(costs));
      },
      py::arg("program"), "Bare costs with what a compiled model plans for the caller of its first step.");
  module.def(
      "communication",
      [](const Program& program, const std::string& device, std::int64_t ranks, std::int64_t bytes_per_s) {
        const c10::DeviceType type = at::Device(device).type();
        std::map<std::size_t, std::pair<std::int64_t, std::int64_t>> found;
        for (std::size_t i = 0; i < program.ops.size(); ++i) {
          const ProgramOp& op = program.ops[i];
          if (!op.call || !is_collective(*op.call)) continue;
          found[i] = {sent_bytes(op, ranks), collective_ns(op, type, ranks, bytes_per_s)};
        }
        return found;
      },
      py::arg("program"), py::arg("device"), py::arg("ranks"), py::arg("bytes_per_s"),
      "By op, for collectives between so many processes: the bytes that each of them sends, and the time.");
  module.def(
      "eager_graph",
      [](const py::capsule& graph, const std::vector<std::uint32_t>& lone_seeds) {
        std::set<ValueId> seeds;
        for (const std::uint32_t seed : lone_seeds) seeds.insert(ValueId{seed});
        EagerGraph eager = eager_graph(*from_capsule<Graph>(graph), seeds);
        std::vector<std::vector<std::size_t>> parts;
        for (const auto& ops : eager.parts) {
          parts.emplace_back();
          for (const OpId op : ops) parts.back().push_back(index(op));
        }
        std::vector<std::size_t> views;
        for (const ValueId value : eager.views) views.push_back(index(value));
        return std::tuple(to_capsule(std::move(eager.graph)), parts, views);
      },
      py::arg("graph"), py::arg("lone_seeds"),
      "(graph, ops that each op stands for, values without memory) of the step as plain PyTorch runs it.");
}

// A book and the step that it belongs to.
struct OwnedBook {
  OwnedBook(const py::capsule& of, const py::capsule& at, std::string planner)
      : graph(from_capsule<Graph>(of)), costs(from_capsule<Costs>(at)), book(*graph, *costs, std::move(planner)) {}
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Costs> costs;
  PlanBook book;
};

void bind_plan_book(py::module_& module) {
  py::class_<FoundPlan>(module, "FoundPlan", "A plan, or the smallest budget that has one.")
      .def_property_readonly("plan",
                             [](const FoundPlan& self) -> std::optional<py::capsule> {
                               if (!self.found()) return std::nullopt;
                               return to_capsule(self.plan);
                             })
      .def_readonly("planner", &FoundPlan::planner)
      .def_property_readonly("peak_bytes", [](const FoundPlan& self) { return self.simulation.peak_bytes; })
      .def_property_readonly("time_ns", [](const FoundPlan& self) { return self.simulation.time_ns; })
      .def_property_readonly("recompute_ns", [](const FoundPlan& self) { return self.simulation.recompute_ns; })
      .def_readonly("smallest_budget_bytes", &FoundPlan::smallest_budget_bytes);
  py::class_<OwnedBook, std::shared_ptr<OwnedBook>>(module, "PlanBook", "The plans known for one step.")
      .def(py::init<const py::capsule&, const py::capsule&, std::string>(), py::arg("graph"), py::arg("costs"),
           py::arg("planner"))
      .def(
          "find",
          [](OwnedBook& self, std::optional<std::int64_t> budget_bytes, double seconds) {
            return self.book.find(budget_bytes, seconds);
          },
          py::arg("budget_bytes"), py::arg("seconds"), py::call_guard<py::gil_scoped_release>())
      .def(
          "smallest_budget_bytes",
          [](OwnedBook& self, double seconds) { return self.book.smallest_budget_bytes(seconds); }, py::arg("seconds"),
          py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void bind_books(py::module_& module) {
  bind_cost_book(module);
  bind_forecasts(module);
  bind_plan_book(module);
}

}  // namespace reprise::bindings
