"""One captured step at work: profiles it, plans it for the memory there is, runs it.

The plan is made when the model is called, not when it is captured: only then is it known what
else lies on the device. Gradients that are there already (accumulation) make another situation
and get another plan. What the caller allocates between forward and backward is measured at the
first step and planned for from then on.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _core, memory, planning, profile
from .captured import Captured
from .cuda_graphs import CudaGraphs, Recorded, hidden_bytes
from .errors import BudgetExceeded, InfeasibleBudget, Unsupported
from .trace.layouts import Layouts
from .memory import Ledger, optimizer_state_bytes, storage_bytes
from .native import _torch
from .api.settings import Settings

log = logging.getLogger("reprise")

# A plan made for less memory than there is now is kept while it would gain at most this share.
SLACK = 0.02
# Of each plan; the second is free of what only the first allocates.
RECORDED_STEPS = 2

# On CUDA the allocator's peak is measured by resetting it. It is the user's, too
# (torch.cuda.max_memory_allocated), so it is left alone after this many steps of a plan.
MEASURED_STEPS = 4


@dataclass
class Planned:
    """A plan at work."""

    found: planning.Found
    executor: Any
    room_bytes: int | None  # what it was made for
    outside_bytes: int  # what lay on the device beside the step
    backward_peak_bytes: int
    measured_peak_bytes: int | None = None
    measured_steps: int = 0
    record: Record | None = None  # of the latest step that was looked at op by op

    @property
    def peak_bytes(self) -> int:
        return self.found.simulation.peak_bytes


@dataclass
class Record:
    """What the allocator said at every step of a plan but the caller's, and there."""

    trace: Any  # a _torch.Trace
    caller_peak_bytes: int
    caller_end_bytes: int
    base_bytes: int  # between the allocator's count and all that is on the device


@dataclass
class Caller:
    """What the caller does between forward and backward."""

    workspace_bytes: int
    kept_bytes: int = 0
    steps: int = 0  # measured


@dataclass
class Open:
    """A forward whose backward has not run."""

    planned: Planned
    total_bytes: int
    room_bytes: int | None
    entry_bytes: int
    end_bytes: int
    forward_peak_bytes: int | None  # None: not measured
    trace: Any = None
    caller_peak_bytes: int = 0
    caller_end_bytes: int = 0


_clock = itertools.count(1)


@dataclass
class Region:
    capture: Callable[[Layouts], Captured]
    settings: Settings
    device: torch.device
    name: str
    plans: list[Planned] = field(default_factory=list)
    current: Planned | None = None
    graph: Any = None
    profile_seconds: float = 0.0
    planning_seconds: float = 0.0
    last_call: int = 0  # orders the calls of all regions

    def __post_init__(self) -> None:
        memory.prepare(self.device)
        self.captured = self.capture(profile.known_layouts(self.device))
        self.ledger = Ledger(self.device, self.settings.model, self.settings.optimizer)
        # Until it is measured: a loss over the outputs holds about two more of them for a moment,
        # and keeps a few numbers, in blocks of their own.
        self.absent_seeds = self.captured.absent_seeds()
        outputs = self.captured.output_bytes(self.absent_seeds)
        self.caller = Caller(2 * outputs if outputs > 1024 else 0,
                             32 * max(128, _torch.granted_bytes(self.device, 1)))
        self.open: dict[int, Open] = {}
        self._optimizer_state: int | None = None
        self.excess_bytes = 0  # that steps took above their plans
        self.given: list[Planned] = []  # plans made elsewhere
        self.graphs: CudaGraphs | None = None
        self.idle_graphs: CudaGraphs | None = None
        self.set_cuda_graphs(self.settings.cuda_graphs)

    # -- Called by the compiled model.

    def forward(self, args: list[Any]) -> list[Any]:
        inputs = list(args)
        args.clear()
        if self.graph is None:
            self._profile()
        recorded = self.graphs.ready(inputs) if self.graphs is not None else None
        total = self.ledger.total_bytes([*inputs, *self.captured.constants], self.captured.program)
        total += hidden_bytes(self.device)
        room = self._room(total)
        planned = self._plan_for(room, total) if recorded is None else self._planned_as_graphs(recorded, total)
        self.last_call = next(_clock)
        measuring = self._is_measuring(planned)
        if measuring:
            _torch.reset_peak(self.device)
        entry = _torch.allocated_bytes(self.device)
        # The first steps of a plan are looked at op by op, for the report.
        trace = _torch.Trace() if recorded is None and planned.measured_steps < RECORDED_STEPS else None
        if recorded is None:
            outputs, handle = self._run(planned, inputs, trace)
        else:
            outputs, handle = recorded.run_forward(inputs), self.graphs.open()
        peak = None
        if measuring:
            peak = _highest(_torch.peak_bytes(self.device), trace)
            _torch.reset_peak(self.device)
        self.open.clear()  # only the last forward is measured
        self.open[_key(handle)] = Open(
            planned, total, room, entry, _torch.allocated_bytes(self.device), peak, trace)
        return [*outputs, handle]

    def _run(self, planned: Planned, inputs: list[Any], trace: Any) -> tuple[list[Any], Any]:
        if trace is not None or self.graphs is None or not self.graphs.pace.begin_step():
            return planned.executor.forward(inputs, trace)
        begin = time.perf_counter()
        results = planned.executor.forward(inputs)
        self.graphs.pace.issued(time.perf_counter() - begin)
        return results

    def backward(self, args: list[Any]) -> list[Any]:
        handle, *seeds = args
        args.clear()
        if torch._C._autograd._get_current_graph_task_keep_graph():
            raise Unsupported(
                "backward(retain_graph=True) and create_graph=True are not supported: Reprise frees what it "
                "saved while backward runs. Add the losses up and call backward() once.")
        opened = self.open.pop(_key(handle), None)
        if opened is not None:
            self._meet_caller(opened, seeds)
        seeds = self._with_zeros(seeds)
        gradients = self._run_back(handle, seeds)
        if opened is not None and opened.forward_peak_bytes is not None:
            self._note_peak(opened)
        return gradients

    def _run_back(self, handle: Any, seeds: list[Any]) -> list[Any]:
        recorded = self.graphs.owner_of(handle) if self.graphs is not None else None
        if recorded is not None:
            return recorded.run_backward(seeds)
        begin = time.perf_counter()
        gradients = _torch.backward(handle, seeds)
        if self.graphs is not None:
            self.graphs.pace.end_step(time.perf_counter() - begin)
        return gradients

    def _is_measuring(self, planned: Planned) -> bool:
        return self.device.type == "cpu" or planned.measured_steps < MEASURED_STEPS

    def _note_peak(self, opened: Open) -> None:
        planned = opened.planned
        backward_peak = _highest(_torch.peak_bytes(self.device), opened.trace)
        base = opened.total_bytes - opened.entry_bytes
        planned.measured_peak_bytes = base + max(
            opened.forward_peak_bytes, opened.caller_peak_bytes, backward_peak)
        planned.measured_steps += 1
        if opened.trace is not None:
            planned.record = Record(opened.trace, opened.caller_peak_bytes, opened.caller_end_bytes, base)
        excess = planned.measured_peak_bytes - planned.peak_bytes - planned.outside_bytes
        # On the CPU there is none. On CUDA a library may take another algorithm than it did when measured.
        if self.device.type != "cpu" and self.caller.steps > 2 and excess > self.excess_bytes:
            log.warning("%s: a step took %s more than its plan; the next ones are planned for it",
                        self.name, _core.format_bytes(excess))
            self.excess_bytes = excess

    # -- Gradients that the caller has, and those it has not.

    def _with_zeros(self, seeds: list[Any]) -> list[Any]:
        """Where the program needs a gradient that the caller has not."""
        needed = [i for i, seed in enumerate(seeds)
                  if seed is None and i not in self.captured.optional_seeds]
        if needed:
            empty = _torch.empty_seeds(self.captured.program, set(needed))
            for i in needed:
                seeds[i] = empty[i].zero_() if empty[i] is not None else None
        return seeds

    # -- Planning.

    def _profile(self) -> None:
        if self.settings.profile == "roofline":
            profile.estimate(self.captured)
        else:
            self.measure()
        self._rebuild_graph()

    def measure(self) -> None:
        """Gives every call of the step the cost it has on the device, and its results their layout there."""
        known: Layouts = {}
        while True:
            seconds, wrong = profile.measure(self.captured, self.device)
            self.profile_seconds += seconds
            if not wrong:
                return
            profile.check_layouts(wrong, known)
            known |= wrong  # where fake tensors and the device disagree, the device is right
            self.captured = self.capture(profile.known_layouts(self.device) | known)

    def _rebuild_graph(self) -> None:
        program = self.captured.program
        program.set_cost(program.caller_op, 0, self.caller.workspace_bytes)
        program.set_value_bytes(self.captured.caller_value, self.caller.kept_bytes)
        for i, value in enumerate(self.captured.seed_values):
            program.set_value_bytes(value, 0 if i in self.absent_seeds else self.captured.seed_bytes[i])
        self.graph = _core.Graph.from_capsule(program.graph())

    def _reserve_bytes(self) -> int:
        """For what will be allocated later: the optimizer's state, and what the user named."""
        optimizer = self.settings.stepper
        if optimizer is None:
            return self.settings.reserve_bytes
        if self._optimizer_state is None:
            self._optimizer_state = optimizer_state_bytes(optimizer, self.device)
        there = storage_bytes(list(optimizer.state.values()), self.device)
        return self.settings.reserve_bytes + max(0, self._optimizer_state - there)

    def _room(self, total: int) -> int | None:
        """Bytes for the step itself, its inputs and parameters included."""
        if self.settings.budget_bytes is None:
            return None
        outside = total - self.captured.resident_bytes
        return self.settings.budget_bytes - outside - self._reserve_bytes() - self.excess_bytes

    def _plan_for(self, room: int | None, total: int) -> Planned:
        outside = total - self.captured.resident_bytes
        fitting = [p for p in self.plans if room is None or p.peak_bytes <= room]
        if fitting:
            best = min(fitting, key=lambda p: p.found.simulation.time_ns)
            gained = 0 if room is None or best.room_bytes is None else room - best.room_bytes
            if best.found.simulation.recompute_ns == 0 or gained <= SLACK * (self.settings.budget_bytes or 0):
                best.outside_bytes = outside
                self.current = best
                return best
        self.current = self._make_plan(room, outside)
        self.plans.append(self.current)
        return self.current

    def _planned_as_graphs(self, recorded: Recorded, total: int) -> Planned:
        """Its peak is that of the pool, and of what is allocated beside it."""
        if recorded.planned is None:
            recorded.planned = Planned(recorded.found, recorded.executor, None, 0, recorded.found.simulation.peak_bytes)
        self.current = recorded.planned
        peak = self.graphs.peak_bytes()
        self.current.outside_bytes = peak - self.current.peak_bytes
        self.current.backward_peak_bytes = peak - (total - self.captured.resident_bytes)
        return self.current

    def _make_plan(self, room: int | None, outside: int) -> Planned:
        found = self._find(self.graph, room)
        if found.plan is None and self.settings.profile != "roofline":
            # How far a search for little memory gets depends on times, which are noisy: again with times that are not.
            smooth = planning.with_times(self.graph, self.captured.estimates)
            self._find(smooth, room)
            planning.carry_over(smooth, self.graph, self.settings.planner)
            found = self._find(self.graph, room)
        if found.plan is None:
            self._refuse(found, outside)
        executor = _torch.Executor(self.captured.program, found.plan.to_bytes())
        planned = Planned(found, executor, room, outside, self._backward_peak(found.plan))
        log.info("%s: %s plan, peak %s, recomputation %.1f %% of the step", self.name, found.planner,
                 _core.format_bytes(planned.peak_bytes + outside),
                 planning.recomputation_percent(found.simulation.recompute_ns, found.simulation.time_ns))
        return planned

    def _find(self, graph: _core.Graph, room: int | None) -> planning.Found:
        found = planning.find(graph, None if room is None else max(room, 0), self.settings.planner,
                              self.settings.planning_seconds)
        self.planning_seconds += found.seconds
        return found

    def _refuse(self, found: planning.Found, outside: int) -> None:
        reserve = self._reserve_bytes() + self.excess_bytes
        budget = self.settings.budget_bytes
        smallest = found.smallest_budget_bytes + outside + reserve
        raise InfeasibleBudget(
            f"{self.name} cannot be trained inside {_core.format_bytes(budget)}: the smallest budget found is "
            f"{_core.format_bytes(smallest)} ({smallest} bytes), of which {_core.format_bytes(outside)} are "
            f"allocated beside this step and {_core.format_bytes(reserve)} are reserved. Raise the budget or "
            "make the batch smaller.", budget, smallest)

    def _backward_peak(self, plan: Any) -> int:
        times = _core.timeline(self.graph, plan)
        caller = self.captured.program.caller_op
        begin = next(i for i, (kind, op) in enumerate(plan.steps) if kind != 2 and op == caller)
        return max(times.during_bytes[begin:])

    def use(self, plan: Any, planner: str, source: str) -> None:
        """Takes a plan made elsewhere for this graph. One that was taken before goes on as it was."""
        planned = next((p for p in (*self.given, *self.plans) if p.found.plan is plan), None)
        if planned is None:
            wrong = _core.validate(self.graph, plan)
            if wrong is not None:
                raise ValueError(f"{source}: this plan is not for {self.name} with these shapes: {wrong}")
            found = planning.Found(plan, planner, _core.simulate(self.graph, plan), 0)
            planned = Planned(found, _torch.Executor(self.captured.program, plan.to_bytes()), None,
                              self.current.outside_bytes, self._backward_peak(plan))
        if planned not in self.given:
            self.given.append(planned)
        self.plans = [planned]
        self.current = planned
        self.set_cuda_graphs(False)  # they have plans of their own

    def plan_ahead(self, outside: int) -> None:
        """Makes the plan of the next call now, and drops all others."""
        self.plans = []
        total = outside + self.captured.resident_bytes
        self._plan_for(self._room(total), total)

    def set_cuda_graphs(self, use: bool | str) -> None:
        """What was recorded stays, with its memory."""
        self.idle_graphs, self.graphs = self.graphs or self.idle_graphs, None
        if self.device.type == "cuda" and use is not False:
            self.graphs = self.idle_graphs or CudaGraphs(self, must=False)
            self.graphs.must = use is True

    def release_graphs(self) -> None:
        for graphs in (self.graphs, self.idle_graphs):
            if graphs is not None:
                graphs.release()

    def release(self) -> None:
        self.plans, self.given, self.current = [], [], None
        self.release_graphs()

    # -- Between forward and backward.

    def _meet_caller(self, opened: Open, given: list[Any]) -> None:
        """Compares what the caller allocated with what was planned for; learns from it."""
        now = _torch.allocated_bytes(self.device)
        opened.caller_peak_bytes = _torch.peak_bytes(self.device) if opened.forward_peak_bytes is not None else now
        opened.caller_end_bytes = now
        absent = {i for i in self.captured.optional_seeds if given[i] is None}
        planned = sum(self.captured.program.value_bytes(v) for v in self.captured.seed_values)
        seeds = sum(size for i, size in enumerate(self.captured.seed_bytes) if given[i] is not None)
        kept = max(0, now - opened.end_bytes - seeds)
        workspace = max(0, opened.caller_peak_bytes - opened.end_bytes - seeds - kept)
        more = max(0, kept + seeds - self.caller.kept_bytes - planned)
        self._learn(workspace, kept, absent)
        room = opened.room_bytes
        reached = opened.total_bytes + opened.caller_peak_bytes - opened.entry_bytes
        if room is not None and reached > self.settings.budget_bytes:
            log.warning("%s: between forward and backward memory reached %s, above the budget of %s; the next step "
                        "is planned for it", self.name, _core.format_bytes(reached),
                        _core.format_bytes(self.settings.budget_bytes))
        if room is not None and more and opened.planned.backward_peak_bytes + more > room:
            raise BudgetExceeded(
                f"between forward and backward {_core.format_bytes(kept)} were allocated and kept, "
                f"{_core.format_bytes(more)} more than this step was planned for, and backward would not stay "
                f"inside the budget of {_core.format_bytes(self.settings.budget_bytes)}. This is known now: "
                "run the step again and it will be planned for.")

    def _learn(self, workspace: int, kept: int, absent: set[int]) -> None:
        """The first step may allocate what later ones do not; from the second on, the most counts."""
        before = self.caller
        if before.steps >= 2:
            workspace, kept = max(workspace, before.workspace_bytes), max(kept, before.kept_bytes)
        self.caller = Caller(workspace, kept, before.steps + 1)
        if before.steps > 0:
            absent &= self.absent_seeds  # from the second step on, what came once may come again
        changed = absent != self.absent_seeds
        self.absent_seeds = absent
        if changed or (workspace, kept) != (before.workspace_bytes, before.kept_bytes):
            self._look_again()

    def _look_again(self) -> None:
        """Drops plans that the caller's true needs have made wrong, or too tight for the memory
        they leave unused."""
        before = self.graph
        self._rebuild_graph()
        planning.carry_over(before, self.graph, self.settings.planner)
        kept = []
        for planned in self.plans:
            simulation = _core.simulate(self.graph, planned.found.plan)
            unused = _core.simulate(before, planned.found.plan).peak_bytes - simulation.peak_bytes
            planned.found = planning.Found(
                planned.found.plan, planned.found.planner, simulation, 0, planned.found.seconds)
            planned.backward_peak_bytes = self._backward_peak(planned.found.plan)
            if planned.room_bytes is None or (simulation.peak_bytes <= planned.room_bytes and (
                    simulation.recompute_ns == 0 or unused <= SLACK * planned.room_bytes)):
                kept.append(planned)
        self.plans = kept


def _highest(peak: int, trace: Any) -> int:
    """A trace begins a new peak at every step, and has them all."""
    return peak if trace is None else max([peak, *trace.during_bytes])


def _key(handle: torch.Tensor) -> int:
    return handle.untyped_storage().data_ptr()
