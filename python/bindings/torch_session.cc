#include <pybind11/functional.h>
#include <torch/csrc/autograd/python_variable.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "reprise/error.h"
#include "runtime/program/program_queries.h"
#include "runtime/session/session.h"
#include "runtime/session/sizes_that_fit.h"
#include "torch_parts.h"

namespace reprise::bindings {
namespace {

using Results = Session::Results;

// Lets Ctrl-C end a step between two ops, ten times a second at most. Python sees signals only on its main thread; a
// step on an accelerator runs on another thread and is queued in milliseconds.
std::function<void()> interrupted_by_signals(at::Device device) {
  if (!device.is_cpu()) return {};
  auto last = std::chrono::steady_clock::now();
  return [last]() mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::milliseconds(100)) return;
    last = now;
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  };
}

// Between forward and backward a step lives in the storage of an empty tensor that autograd saves, and is freed when
// autograd drops that tensor.
struct Between {
  std::shared_ptr<Session> session;
  std::vector<std::int64_t> takers{};     // by gradient: what the caller calls whoever takes it early; -1: nobody
  std::shared_ptr<py::object> objects{};  // what the caller asks for again
  RunningStep running{};
};
void drop_between(void* between) { delete static_cast<Between*>(between); }

at::Tensor handle_of(std::unique_ptr<Between> between) {
  Between* context = between.release();
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(context, context, &drop_between, at::kCPU));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                   c10::scalarTypeToTypeMeta(at::kFloat));
  impl->set_sizes_contiguous({0});
  return at::Tensor(std::move(impl));
}

Between& between_of(const at::Tensor& handle) {
  auto* between = handle.storage().data_ptr().cast_context<Between>(&drop_between);
  if (between == nullptr) throw InternalError("this tensor is not the handle of a step");
  return *between;
}

// Entries that are not tensors become undefined tensors, because they are not read.
std::vector<at::Tensor> tensors_from(const py::sequence& objects) {
  std::vector<at::Tensor> tensors;
  for (const py::handle object : objects) {
    tensors.push_back(THPVariable_Check(object.ptr()) ? object.cast<at::Tensor>() : at::Tensor());
  }
  return tensors;
}

// A Python object that C++ code may drop without the interpreter's lock: autograd frees the handle of a step, and with
// it perhaps the session, wherever it is done with it.
template <typename Object>
std::shared_ptr<Object> shared_object(const Object& object) {
  return {new Object(object), [](Object* dropped) {
            if (Py_IsInitialized() == 0) return;  // the interpreter is gone, and the object with it
            const py::gil_scoped_acquire gil;
            delete dropped;
          }};
}

std::pair<Results, at::Tensor> run_forward(const std::shared_ptr<Session>& session, const py::sequence& given,
                                           std::vector<std::int64_t> takers, const py::object& objects) {
  const std::vector<at::Tensor> inputs = tensors_from(given);
  const auto interrupted = interrupted_by_signals(session->program().device);
  auto between = std::make_unique<Between>(session, std::move(takers), shared_object(objects));
  const py::gil_scoped_release no_gil;
  auto outputs = session->forward(inputs, between->running, interrupted);
  return {std::move(outputs), handle_of(std::move(between))};
}

Results run_backward(const at::Tensor& handle, const py::sequence& given, const std::optional<py::function>& take) {
  std::vector<at::Tensor> seeds = tensors_from(given);
  Between& between = between_of(handle);
  const Program& program = between.session->program();
  const auto interrupted = interrupted_by_signals(program.device);
  if (!take || between.takers.empty()) {
    const py::gil_scoped_release no_gil;
    return between.session->backward(std::move(seeds), between.running, interrupted);
  }
  const auto call = [&](std::size_t gradient, const at::Tensor& tensor) {
    const py::gil_scoped_acquire gil;
    (*take)(between.takers[gradient], tensor);
  };
  GradientTaker taker{.wants = std::vector<std::uint8_t>(program.gradients.size(), 0), .take = call};
  for (std::size_t i = 0; i < std::min(between.takers.size(), program.gradients.size()); ++i) {
    const auto& gradient = program.gradients[i];
    const auto& variable = program.inputs[i];
    taker.wants[i] =
        between.takers[i] >= 0 && gradient && variable && taken_without_copy(gradient->geometry, variable->geometry);
  }
  const py::gil_scoped_release no_gil;
  return between.session->backward(std::move(seeds), between.running, interrupted, &taker);
}

// Calls a Python function from C++ code that runs without the interpreter's lock.
template <typename Result, typename... Arguments>
std::function<Result(Arguments...)> called_with_lock(const std::optional<py::function>& function) {
  if (!function) return {};
  return [function = shared_object(*function)](Arguments... arguments) {
    const py::gil_scoped_acquire gil;
    return (*function)(arguments...).template cast<Result>();
  };
}

std::shared_ptr<Together> make_together(bool is_first, const py::function& least, const py::function& of_first,
                                        const py::function& settled) {
  return std::make_shared<Together>(Together{.is_first = is_first,
                                             .least = called_with_lock<Together::Numbers, Together::Numbers>(least),
                                             .of_first = called_with_lock<std::string, std::string>(of_first),
                                             .settled = called_with_lock<std::int64_t>(settled)});
}

std::shared_ptr<Session> make_session(std::shared_ptr<Program> program, std::map<std::uint32_t, std::string> keys,
                                      std::shared_ptr<SessionOptions> options,
                                      const std::optional<py::function>& known_tensors,
                                      const std::optional<py::function>& future_bytes,
                                      const std::optional<py::function>& optimizer_state,
                                      const std::optional<py::function>& owned_inputs,
                                      const std::optional<py::function>& capture_again,
                                      std::shared_ptr<SizeFamily> family, std::shared_ptr<Together> together) {
  Surroundings around;
  around.known_tensors = called_with_lock<std::vector<at::Tensor>>(known_tensors);
  around.future_bytes = called_with_lock<std::int64_t>(future_bytes);
  around.optimizer_state = called_with_lock<std::vector<at::Tensor>>(optimizer_state);
  around.owned_inputs = [owned = called_with_lock<std::vector<bool>, std::vector<at::Tensor>>(owned_inputs)](
                            std::span<const at::Tensor> inputs) {
    return owned ? owned({inputs.begin(), inputs.end()}) : std::vector<bool>(inputs.size(), false);
  };
  if (capture_again) {
    around.capture_again = [again = shared_object(*capture_again)](const KnownLayouts& layouts) {
      const py::gil_scoped_acquire gil;
      return captured_from((*again)(layout_tuples(layouts)).cast<py::tuple>());
    };
  }
  around.family = std::move(family);
  around.together = std::move(together);
  return std::make_shared<Session>(captured_from(std::move(program), keys), std::move(options), std::move(around));
}

py::object cuda_graphs_to(CudaGraphs graphs) {
  switch (graphs) {
    case CudaGraphs::kOff:
      return py::bool_(false);
    case CudaGraphs::kOn:
      return py::bool_(true);
    case CudaGraphs::kAuto:
      return py::str("auto");
  }
  throw InternalError("unknown setting of CUDA graphs");
}

CudaGraphs cuda_graphs_from(const py::object& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? CudaGraphs::kOn : CudaGraphs::kOff;
  if (py::isinstance<py::str>(value) && value.cast<std::string>() == "auto") return CudaGraphs::kAuto;
  throw InputError("cuda_graphs=" + py::repr(value).cast<std::string>() + ": choose 'auto', True or False");
}

py::object arena_to(UseArena arena) {
  if (arena == UseArena::kAuto) return py::str("auto");
  return py::bool_(arena == UseArena::kOn);
}

UseArena arena_from(const py::object& value) {
  if (py::isinstance<py::bool_>(value)) return value.cast<bool>() ? UseArena::kOn : UseArena::kOff;
  if (py::isinstance<py::str>(value) && value.cast<std::string>() == "auto") return UseArena::kAuto;
  throw InputError("arena=" + py::repr(value).cast<std::string>() + ": choose 'auto', True or False");
}

py::object slices_to(UseSlices slices) {
  if (slices == UseSlices::kClose) return py::str("close");
  return py::bool_(slices == UseSlices::kExact);
}

void bind_options(py::module_& module) {
  py::class_<SessionOptions, std::shared_ptr<SessionOptions>>(
      module, "Options", "What the user asked for; shared by the steps of a model.")
      .def(py::init<>())
      .def_readwrite("budget_bytes", &SessionOptions::budget_bytes)
      .def_readwrite("reserve_bytes", &SessionOptions::reserve_bytes)
      .def_readwrite("host_budget_bytes", &SessionOptions::host_budget_bytes)
      .def_readwrite("park_optimizer", &SessionOptions::park_optimizer)
      .def_property_readonly("parks", &SessionOptions::parks)
      .def_readwrite("planner", &SessionOptions::planner)
      .def_readwrite("planning_seconds", &SessionOptions::planning_seconds)
      .def_readwrite("waiting_seconds", &SessionOptions::waiting_seconds)
      .def_readwrite("measure", &SessionOptions::measure)
      .def_readwrite("watch", &SessionOptions::watch)
      .def_readwrite("steps_before_cuda_graphs", &SessionOptions::steps_before_cuda_graphs)
      .def_readwrite("launch_bound", &SessionOptions::launch_bound)
      .def_property(
          "cuda_graphs", [](const SessionOptions& self) { return cuda_graphs_to(self.cuda_graphs); },
          [](SessionOptions& self, const py::object& value) { self.cuda_graphs = cuda_graphs_from(value); })
      .def_property(
          "arena", [](const SessionOptions& self) { return arena_to(self.arena); },
          [](SessionOptions& self, const py::object& value) { self.arena = arena_from(value); })
      .def_property(
          "slices", [](const SessionOptions& self) { return slices_to(self.slices); },
          [](SessionOptions& self, const py::object& value) { self.slices = slices_from(value); })
      .def(
          "bring_back_state", [](const SessionOptions& self) { bring_back_state(self); },
          py::call_guard<py::gil_scoped_release>(),
          "Brings back what steps of the model have stored of the optimizer's state and not fetched yet.");
}

void bind_plan_at_work(py::module_& module) {
  py::class_<PlanAtWork, std::shared_ptr<PlanAtWork>>(module, "PlanAtWork", "A plan that steps use.")
      .def_property_readonly("plan", [](const PlanAtWork& self) { return to_capsule(self.found.plan); })
      .def_property_readonly("planner", [](const PlanAtWork& self) { return self.found.planner; })
      .def_property_readonly("step_peak_bytes", [](const PlanAtWork& self) { return self.found.simulation.peak_bytes; })
      .def_property_readonly("time_ns", [](const PlanAtWork& self) { return self.found.simulation.time_ns; })
      .def_property_readonly("recompute_ns", [](const PlanAtWork& self) { return self.found.simulation.recompute_ns; })
      .def_property_readonly("wait_ns", [](const PlanAtWork& self) { return self.found.simulation.wait_ns; })
      .def_property_readonly("exposed_ns", [](const PlanAtWork& self) { return self.found.simulation.exposed_ns; })
      .def_readonly("measured_wait_ns", &PlanAtWork::measured_wait_ns,
                    "How long the latest step that was timed waited for copies.")
      .def_property_readonly(
          "host_peak_bytes", [](const PlanAtWork& self) { return self.found.simulation.host_peak_bytes; },
          "The most that lies in the host's memory at once.")
      .def_property_readonly("peak_bytes", &PlanAtWork::peak_bytes, "Predicted peak of everything on the device.")
      .def_readonly("parked_bytes", &PlanAtWork::parked_bytes, "How much of the optimizer's state it stores there.")
      .def_readonly("room_bytes", &PlanAtWork::room_bytes)
      .def_readonly("outside_bytes", &PlanAtWork::outside_bytes)
      .def_readonly("measured_peak_bytes", &PlanAtWork::measured_peak_bytes)
      .def_readonly("as_cuda_graphs", &PlanAtWork::as_cuda_graphs)
      .def_property_readonly(
          "slices", [](const PlanAtWork& self) { return self.form.key.slices; },
          "In which a chain of the step's calls runs; 1: the step is whole.")
      .def_property_readonly(
          "sliced", [](const PlanAtWork& self) { return self.form.chain; }, "What runs in slices, for people.")
      .def_property_readonly(
          "arena_bytes", [](const PlanAtWork& self) { return self.arena ? self.arena->block_bytes : 0; },
          "The size of the block in which the latest step lay; 0 if it had none.")
      .def_property_readonly(
          "measured",
          [](const PlanAtWork& self) -> std::optional<std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> {
            if (!self.measured) return std::nullopt;
            return std::pair(self.measured->during_bytes, self.measured->after_bytes);
          },
          "Bytes during and after every action, of the latest step that was measured action by action.");
}

void bind_arena(py::module_& module, py::class_<Session, std::shared_ptr<Session>>& session) {
  py::class_<ArenaUse>(module, "ArenaUse", "How the steps of a model use their arena.")
      .def_readonly("is_on", &ArenaUse::is_on)
      .def_readonly("block_bytes", &ArenaUse::block_bytes, "The size of the block, which is kept between steps.")
      .def_readonly("arena_bytes", &ArenaUse::arena_bytes, "What the latest plan needs.")
      .def_readonly("load_bytes", &ArenaUse::load_bytes, "The most that is live in it at once.")
      .def_readonly("steps", &ArenaUse::steps, "How many steps were served from it.")
      .def_readonly("steps_without", &ArenaUse::steps_without)
      .def_readonly("why_without", &ArenaUse::why_without, "Why the latest step that was not served from it was not.")
      .def_property_readonly("served", [](const ArenaUse& self) { return self.requests.served; })
      .def_property_readonly(
          "unplanned", [](const ArenaUse& self) { return self.requests.unplanned; },
          "Requests that were not of the plan, and went to PyTorch's allocator.")
      .def_property_readonly(
          "kept", [](const ArenaUse& self) { return self.requests.kept; }, "Blocks that a call kept for itself.");
  session.def_property_readonly("arena", &Session::arena_use).def("release_arena", &Session::release_arena);
}

void bind_cuda_graphs(py::module_& module, py::class_<Session, std::shared_ptr<Session>>& session) {
  py::class_<ReplayUse>(module, "CudaGraphsUse", "How the steps of a model run as CUDA graphs.")
      .def_readonly("recorded", &ReplayUse::recorded, "The next step may be a replay.")
      .def_readonly("pending", &ReplayUse::pending, "A forward whose backward has not run holds their memory.")
      .def_readonly("recordings", &ReplayUse::recordings)
      .def_readonly("refused", &ReplayUse::refusal, "Why no graphs are recorded.")
      .def_readonly("pool_bytes", &ReplayUse::pool_bytes)
      .def_readonly("hidden_bytes", &ReplayUse::hidden_bytes,
                    "Bytes of the pool that are in use at every replay and that no allocator counts.");
  session.def_property_readonly("cuda_graphs", &Session::replay_use)
      .def("allow_cuda_graphs", &Session::allow_replays,
           "Allows graphs again, also after a plan was given, which turns them off.")
      .def("release_cuda_graphs", &Session::release_replay);
}

std::string words_of_sizes(SizeFamily& shared, const ProgramFamily& family, const std::vector<std::int64_t>& symbols,
                           std::int64_t room_bytes, const std::function<bool(std::vector<std::int64_t>)>& holds,
                           const std::vector<std::string>& words) {
  const RefusedSize size{
      .program = family,
      .symbols = symbols,
      .room_bytes = room_bytes,
      .holds = [&](std::span<const std::int64_t> tried) { return holds(std::vector(tried.begin(), tried.end())); }};
  const py::gil_scoped_release no_gil;  // which a function of Python takes when it is called
  return sizes_that_fit(shared, size, words);
}

}  // namespace

void bind_session(py::module_& module) {
  bind_options(module);
  bind_plan_at_work(module);
  py::class_<SizeFamily, std::shared_ptr<SizeFamily>>(module, "SizeFamily",
                                                      "What the sessions of one step at several sizes share.")
      .def("sizes_that_fit", &words_of_sizes, py::arg("family"), py::arg("symbols"), py::arg("room_bytes"),
           py::arg("holds"), py::arg("words"),
           "What to add to the refusal of a size: the largest sizes that would fit, in words. holds(symbols): whether "
           "the step is the same there. words: of the symbols.")
      .def_property_readonly_static(
          "most_members", [](const py::object&) { return SizeFamily::kMostMembers; }, "Sizes whose sessions are kept.");
  module.def("backward", &run_backward, py::arg("handle"), py::arg("seeds"), py::arg("take") = py::none(),
             "Backward of the step whose forward gave the handle. Gradients with a taker may be passed to take(taker, "
             "gradient) "
             "before backward ends, and are not returned then.");
  module.def(
      "objects_of",
      [](const at::Tensor& handle) {
        const auto& objects = between_of(handle).objects;
        return objects == nullptr ? py::object(py::none()) : *objects;
      },
      py::arg("handle"), "What the forward that gave the handle was told to keep.");
  py::class_<Together, std::shared_ptr<Together>>(module, "Together",
                                                  "What processes that communicate within a step tell one another.")
      .def(py::init(&make_together), py::arg("is_first"), py::arg("least"), py::arg("of_first"), py::arg("settled"))
      .def_property_readonly_static(
          "most_numbers", [](const py::object&) { return Together::kMostNumbers; },
          "How many numbers are given to least() at once.");
  py::class_<Session, std::shared_ptr<Session>> session(module, "Session", "One captured step in use.");
  session
      .def(py::init(&make_session), py::arg("program"), py::arg("layout_keys"), py::arg("options"), py::kw_only(),
           py::arg("known_tensors") = py::none(), py::arg("future_bytes") = py::none(),
           py::arg("optimizer_state") = py::none(), py::arg("owned_inputs") = py::none(),
           py::arg("capture_again") = py::none(), py::arg("family") = py::none(), py::arg("together") = py::none())
      .def_property_readonly_static(
          "measured_steps", [](const py::object&) { return Session::kMeasuredSteps; },
          "How many steps of each plan are measured on CUDA, where the allocator's peak is the user's, too.")
      .def("forward", &run_forward, py::arg("inputs"), py::arg("takers") = std::vector<std::int64_t>(),
           py::arg("objects") = py::none(),
           "(outputs, handle): the handle carries the step to backward(). takers: by input, who takes its gradient; -1 "
           "if nobody does. objects: what objects_of(handle) returns.")
      .def(
          "owns",
          [](const Session& self, const at::Tensor& handle) { return between_of(handle).session.get() == &self; },
          py::arg("handle"), "Whether its forward gave this handle.")
      .def(
          "go_on_as",
          [](Session& self, Session& other, const at::Tensor& handle) {
            return self.go_on_as(other, between_of(handle).running);
          },
          py::arg("other"), py::arg("handle"), py::call_guard<py::gil_scoped_release>(),
          "Goes on with a step of this session whose forward has run as with the same step for other gradients of its "
          "outputs. Returns whether that is possible, and inside the budget.")
      .def("make_family", &Session::make_family, py::call_guard<py::gil_scoped_release>(),
           "What sessions of the same step at other sizes can use of this one.")
      .def(
          "plan_ahead",
          [](Session& self, std::int64_t outside_bytes) {
            const FoundPlan found = self.plan_ahead(outside_bytes);
            if (!found.found()) throw_infeasible(found, self.options());
          },
          py::arg("outside_bytes"), py::call_guard<py::gil_scoped_release>(),
          "Makes the plan of a call while so much lies on the device beside the step.")
      .def("drop_plans", &Session::drop_plans)
      .def(
          "use",
          [](Session& self, const py::capsule& plan, const std::string& planner, const std::string& source) {
            return self.use(*from_capsule<Plan>(plan), planner, source);
          },
          py::arg("plan"), py::arg("planner"), py::arg("source"), "Takes a plan made elsewhere for this step.")
      .def("use", [](Session& self, std::shared_ptr<PlanAtWork> plan) { self.use(std::move(plan)); })
      .def("release", &Session::release)
      .def(
          "measure", [](Session& self) { (void)self.costs(); }, py::call_guard<py::gil_scoped_release>(),
          "Gives every call the cost it has on the device, and its results their layout there.")
      .def(
          "measure_for",
          [](Session& self, const py::sequence& given) {
            const std::vector<at::Tensor> inputs = tensors_from(given);
            const py::gil_scoped_release no_gil;
            self.measure_for(inputs);
          },
          py::arg("inputs"), "The same, unless no plan can fit the budget of a call with these inputs.")
      .def_property_readonly("graph", [](const Session& self) { return to_capsule(self.graph()); })
      .def_property_readonly(
          "costs", [](Session& self) { return to_capsule(self.costs()); }, "In a capsule for reprise._core.Costs.")
      .def_property_readonly("program", [](const Session& self) { return self.whole_step().program; })
      .def_property_readonly("layout_keys", [](const Session& self) { return key_numbers(self.whole_step()); })
      .def_property_readonly("device", [](const Session& self) { return self.program().device; })
      .def_property_readonly(
          "has_plan", [](const Session& self) { return self.current() != nullptr; }, "Whether a step has been planned.")
      .def_property_readonly(
          "plan",
          py::cpp_function([](Session& self) { return std::const_pointer_cast<PlanAtWork>(self.settled()); },
                           py::call_guard<py::gil_scoped_release>()),
          "The plan of the next step; waits for the search to come to its end.")
      .def_property_readonly("measured_peak_bytes", &Session::measured_peak_bytes,
                             "The peak of the latest step that was measured.")
      .def_property_readonly("room_bytes", &Session::room_bytes,
                             "What the latest step that was planned for had for itself; None: no budget.")
      .def_property_readonly(
          "optional_seeds", [](const Session& self) { return self.caller().optional_seeds(); },
          "The gradients of outputs that only sums read, which leave them out where the caller does not have them.")
      .def_property_readonly("absent_seeds", [](const Session& self) { return self.caller().absent_seeds(); })
      .def_property_readonly("num_plans", &Session::num_plans)
      .def_property_readonly("total_bytes", &Session::total_bytes, "Bytes of everything on the device.")
      .def_property_readonly("profile_seconds", &Session::profile_seconds)
      .def_property_readonly("planning_seconds", &Session::planning_seconds)
      .def_property_readonly("last_call", &Session::last_call);
  bind_arena(module, session);
  bind_cuda_graphs(module, session);
}

}  // namespace reprise::bindings
