// The forms of a step, for forecasts: Python derives their costs at any batch size, and the runtime chooses as sessions
// do.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reprise/simulate.h"
#include "reprise/torch/errors.h"
#include "runtime/costs/cost_book.h"
#include "runtime/kernels/kernel.h"
#include "runtime/session/forms.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

// A form of a step with its costs, as Python gave them.
struct GivenForm {
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Costs> costs;
};

// A form in Python: how many slices, and whether sums are added up over them.
using KeyPair = std::pair<std::int64_t, bool>;

KeyPair pair_of(FormKey key) { return {key.slices, key.sums == Sums::kInSlices}; }
FormKey key_of(KeyPair pair) { return {pair.first, pair.second ? Sums::kInSlices : Sums::kWhole}; }

class GivenForms {
 public:
  GivenForms(py::function form_of, PlanMethod method, double seconds, double soon_seconds)
      : form_of_(std::move(form_of)), method_(std::move(method)), seconds_(seconds), soon_seconds_(soon_seconds) {}

  bool enter(FormKey key) {
    const auto [entry, is_new] = known_.try_emplace(key);
    if (is_new) {
      const py::gil_scoped_acquire gil;
      const py::object made = form_of_(pair_of(key));
      if (!made.is_none()) {
        const auto pair = made.cast<py::tuple>();
        entry->second = GivenForm{from_capsule<Graph>(pair[0].cast<py::capsule>()),
                                  from_capsule<Costs>(pair[1].cast<py::capsule>())};
      }
    }
    if (entry->second) key_ = key;
    return entry->second.has_value();
  }

  [[nodiscard]] FoundPlan find(std::int64_t room, bool soon) const {
    const GivenForm& form = here();
    PlanBook book(*form.graph, *form.costs, method_);
    return book.find(room, soon ? std::min(seconds_, soon_seconds_) : seconds_);
  }

  [[nodiscard]] FormBytes bytes() const { return form_bytes(*here().graph, *here().costs); }
  [[nodiscard]] FormKey key() const { return key_; }

 private:
  [[nodiscard]] const GivenForm& here() const { return *known_.at(key_); }

  py::function form_of_;
  PlanMethod method_;
  double seconds_;
  double soon_seconds_;
  std::map<FormKey, std::optional<GivenForm>> known_;
  FormKey key_{};
};

std::pair<KeyPair, FoundPlan> find_in_given_forms(const py::function& form_of, const py::object& use,
                                                  std::int64_t sliceable, std::int64_t room, const std::string& planner,
                                                  double seconds, double soon_seconds, bool in_full,
                                                  std::int64_t host_budget) {
  GivenForms forms(form_of, {planner, host_budget}, seconds, soon_seconds);
  const UseSlices allowed = slices_from(use);
  const py::gil_scoped_release no_gil;
  if (!forms.enter({})) throw InputError("form_of((1, False)): there is always the whole step");
  if (!may_help(sliceable, room)) return {pair_of({}), forms.find(room, /*soon=*/false)};
  FoundPlan found = find_in_forms({.in_slices = forms_in_slices(allowed),
                                   .enter = [&](FormKey key) { return forms.enter(key); },
                                   .bytes = [&] { return forms.bytes(); },
                                   .find_at_once = [&](std::int64_t bytes) { return forms.find(bytes, /*soon=*/true); },
                                   .find = [&](std::int64_t bytes) { return forms.find(bytes, /*soon=*/false); }},
                                  room);
  if (in_full && found.found()) {  // as a session goes on beside the steps
    FoundPlan longer = forms.find(room, /*soon=*/false);
    if (longer.found() && longer.simulation.time_ns < found.simulation.time_ns) found = std::move(longer);
  }
  return {pair_of(forms.key()), std::move(found)};
}

}  // namespace

UseSlices slices_from(const py::object& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? UseSlices::kExact : UseSlices::kOff;
  if (py::isinstance<py::str>(value) && value.cast<std::string>() == "close") return UseSlices::kClose;
  throw InputError("slices=" + py::repr(value).cast<std::string>() + ": choose True, False or 'close'");
}

void bind_forms(py::module_& module) {
  module.def(
      "forms_in_slices",
      [](const py::object& use) {
        std::vector<KeyPair> pairs;
        for (const FormKey& key : forms_in_slices(slices_from(use))) pairs.push_back(pair_of(key));
        return pairs;
      },
      py::arg("use"), "That are tried, in this order: how many slices, and whether sums are added up over them.");
  py::class_<SlicedProgram>(module, "SlicedStep", "A step with a chain of its calls in slices.")
      .def_property_readonly("program", [](const SlicedProgram& self) { return self.program; })
      .def_property_readonly("words", [](const SlicedProgram& self) { return words_of(*self.whole, self.chain); })
      .def(
          "signature",
          [](const SlicedProgram& self, std::uint32_t op) {
            const auto alike = self.alike.find(OpId{op});
            const std::size_t described = alike == self.alike.end() ? op : index(alike->second);
            return Kernel(self.program->ops.at(described).call.value()).describe(*self.program);
          },
          py::arg("op"), "The text that identifies the cost of a call; calls that are alike have the same.")
      .def(
          "measure",
          [](const SlicedProgram& self) { (void)measure_step({.program = self.program, .alike = self.alike}, {}); },
          py::call_guard<py::gil_scoped_release>(), "Measures what every call costs on the device.");
  module.def(
      "sliced_form",
      [](const Program& program, KeyPair form, bool compare) {
        const py::gil_scoped_release no_gil;
        return sliced_form(program, key_of(form), compare ? SliceBits::kCompared : SliceBits::kExpected);
      },
      py::arg("program"), py::arg("form"), py::arg("compare"),
      "The step in this form, or None. `compare` runs them on the device and compares their bits with the whole.");
  module.def(
      "sliceable_bytes",
      [](const Program& program, const py::object& use) { return sliceable_bytes(program, slices_from(use)); },
      py::arg("program"), py::arg("use"), "Bytes of the chain that would run in slices; 0 if there is none.");
  py::class_<LeastForms>(module, "LeastForms", "The least that the forms of a step so far take.")
      .def(py::init([](const py::capsule& graph, const py::capsule& costs) {
             return LeastForms(form_bytes(*from_capsule<Graph>(graph), *from_capsule<Costs>(costs)));
           }),
           py::arg("graph"), py::arg("costs"))
      .def(
          "take_less",
          [](LeastForms& self, KeyPair form, const py::capsule& graph, const py::capsule& costs) {
            return self.take_less(key_of(form).sums,
                                  form_bytes(*from_capsule<Graph>(graph), *from_capsule<Costs>(costs)));
          },
          py::arg("form"), py::arg("graph"), py::arg("costs"),
          "Whether a further form takes less than all of its kind, so that plans of it are worth a search.");
  module.def("find_in_forms", &find_in_given_forms, py::arg("form_of"), py::arg("use"), py::arg("sliceable_bytes"),
             py::arg("room_bytes"), py::arg("planner"), py::arg("seconds"), py::arg("soon_seconds"), py::arg("in_full"),
             py::arg("host_budget_bytes") = 0,
             "(form, plan) as a session would choose, soon or after it has searched `in_full`. `form_of` gives (graph, "
             "costs) of a form, or None.");
}

}  // namespace reprise::bindings
