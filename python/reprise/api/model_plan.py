"""model.plan: the plan in use, for people."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch.utils.hooks import RemovableHandle

from .. import _core, planning
from ..errors import RepriseError
from ..native import _torch
from ..show.division import Division
from ..show.explanation import Explanation, arena_line, communication_line, loss_line, module_rows
from ..show.online_explanation import OnlineExplanation
from ..show.report import CURVE_SECONDS, Facts, machine_facts, notebook_html, write_report
from ..show.snapshot import write_snapshot
from ..trace.fused.lowered import PARTITIONS
from ..trace.joint_graph import FUSED
from .arguments import byte_count
from .divided_plan import DividedPlan
from .online import online, steps_line
from .session import StepSession
from .settings import Settings

log = logging.getLogger("reprise")



class ModelPlan:
    """The plan of the latest step. Before the first call there is no plan, and `ready` is False.

    The first steps do not wait until the search has come to its end. Whoever asks for the plan does, and is told of the
    plan that the search ends with: the next step runs with it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._sessions: list[StepSession] = []
        self.hooks: list[RemovableHandle] = []  # hooks of the optimizer
        self.online: online | None = None  # the mode in which steps run that are not captured
        self.defers = False  # outputs wait for their loss

    def add(self, session: StepSession) -> None:
        self._sessions.append(session)

    def drop(self, session: StepSession) -> None:
        """Forgets a step that will not be called again as it is."""
        self._sessions.remove(session)

    def release(self) -> None:
        """Frees what plans keep between steps; compiled code may outlive its model."""
        if self.online is not None:
            self.online.end()
        for session in self._sessions:
            session.runtime.release()
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    @property
    def sessions(self) -> tuple[StepSession, ...]:
        """The steps that were captured, in the order in which they came: one for each shape and each way to call the model."""
        return tuple(self._sessions)

    @property
    def captured(self) -> bool:
        """Whether there is a step, planned or not."""
        return bool(self._sessions)

    @property
    def preparation_seconds(self) -> dict[str, float]:
        """What the first steps of all shapes took before they ran, by phase: Dynamo's tracing, AOTAutograd's joint graph,
        lowering, capturing, profiling, planning."""
        planning = sum(session.runtime.planning_seconds for session in self._sessions)
        return {**self.settings.preparation.seconds, "planning": planning}

    @property
    def ready(self) -> bool:
        return any(session.runtime.has_plan for session in self._sessions)

    @property
    def latest_call(self) -> int:
        """A number that grows with every step."""
        return max((session.runtime.last_call for session in self._sessions), default=0)

    @property
    def session(self) -> StepSession:
        """The session that was called last."""
        if self.online is not None:
            raise RepriseError("steps of this model run in the online mode, call by call, and no plan holds for a whole step. "
                               "print(reprise.explain(model)) shows what it does, model.plan.report draws a step that is "
                               "followed, and model.plan.online.summary has the numbers")
        ready = [session for session in self._sessions if session.runtime.has_plan]
        if not ready:
            raise RepriseError("there is no plan yet: call the model once with gradients enabled")
        return max(ready, key=lambda session: session.runtime.last_call)

    @property
    def at_work(self) -> _torch.PlanAtWork:
        """The plan with everything that was measured of it, for `use_again`."""
        plan = self.session.runtime.plan
        assert plan is not None  # a session that is ready has one
        return plan

    @property
    def peak_bytes(self) -> int:
        """Predicted peak: everything that is allocated on the device at the highest instant of the step."""
        return self.at_work.peak_bytes

    @property
    def measured_peak_bytes(self) -> int | None:
        """The measured peak of the latest step that ran to its end, as the allocator counted it."""
        return self.session.runtime.measured_peak_bytes

    @property
    def budget_bytes(self) -> int | None:
        return self.session.settings.options.budget_bytes

    @property
    def time_ns(self) -> int:
        return self.at_work.time_ns

    @property
    def recompute_ns(self) -> int:
        return self.at_work.recompute_ns

    @property
    def wait_ns(self) -> int:
        """Predicted: how long a step waits for copies to the host's memory and back."""
        return self.at_work.wait_ns

    @property
    def exposed_ns(self) -> int:
        """Predicted: how long a step waits for collectives beside which it has nothing to run."""
        return self.at_work.exposed_ns

    @property
    def host_peak_bytes(self) -> int:
        """The most that a step stores in the host's memory at once."""
        return self.at_work.host_peak_bytes

    @property
    def parked_bytes(self) -> int:
        """How much of the optimizer's state a step stores in the host's memory from forward to the end of backward."""
        return self.at_work.parked_bytes

    def bring_back_state(self) -> None:
        """Brings state of the optimizer back that waits in the host's memory between the call of the model and the end of
        backward, for whoever wants to read it there. `optimizer.step()` and `state_dict()` do so by themselves. It takes memory
        that the step was not planned for."""
        self.settings.options.bring_back_state()

    @property
    def slices(self) -> int:
        """In how many slices a chain of the step's calls runs; 1: the step is whole."""
        return self.at_work.slices

    @property
    def sliced(self) -> str:
        """What runs in slices, in words; empty if nothing does."""
        return self.at_work.sliced

    @property
    def slices_line(self) -> str:
        return f"{self.slices}: {self.sliced}" if self.slices > 1 else ""

    @property
    def planner(self) -> str:
        return self.at_work.planner

    @property
    def outside_bytes(self) -> int:
        """Bytes on the device that are not part of the step."""
        return self.at_work.outside_bytes

    @property
    def profile_seconds(self) -> float:
        return self.session.runtime.profile_seconds

    @property
    def planning_seconds(self) -> float:
        return self.session.runtime.planning_seconds

    @property
    def program(self) -> _torch.Program:
        """What runs under the plan: calls over values."""
        return self.session.runtime.program

    @property
    def made_for_any_size(self) -> bool:
        """Whether the program was made from one for any size, and not captured at the size of the latest call."""
        return not self.session.runtime.layout_keys

    @property
    def graph(self) -> _core.Graph:
        return self.session.graph

    @property
    def costs(self) -> _core.Costs:
        return self.session.costs

    @property
    def actions(self) -> _core.Plan:
        return _core.Plan.from_capsule(self.at_work.plan)

    @property
    def cuda_graphs(self) -> _torch.CudaGraphsUse:
        """How steps run as CUDA graphs."""
        return self.session.runtime.cuda_graphs

    @property
    def arena(self) -> _torch.ArenaUse:
        """How steps use their arena."""
        return self.session.runtime.arena

    def smallest_budget_bytes(self, seconds: float = 10.0) -> int:
        """The smallest budget found in that time, counting the memory that is now in use beside the step."""
        planner = self.session.settings.options.planner
        return self.outside_bytes + planning.smallest_budget_bytes(self.graph, self.costs, planner, seconds)

    def set_budget(self, budget: str | int | None) -> None:
        """Changes the budget from the next step on; nothing is captured or measured again."""
        self.settings.options.budget_bytes = None if budget is None else byte_count("budget", budget)

    def set_host_budget(self, host_budget: str | int) -> None:
        """Changes how much of the host's memory steps may store values in, from the next step on."""
        self.settings.set_host_budget(byte_count("host_budget", host_budget))

    @property
    def partition(self) -> str | None:
        """How the fused engine divides the step: "near" if forward saves what torch.compile saves when memory does not matter,
        "far" if backward's kernels compute cheap chains again. The two round differently."""
        return self.session.form.partition if self.settings.engine == FUSED else None

    def set_partition(self, partition: str | None) -> None:
        """Fixes the partition from the next step on. None: the faster one at this budget, decided after the first steps."""
        if partition is not None and partition not in PARTITIONS:
            raise ValueError(f"partition={partition!r}: choose {', '.join(map(repr, PARTITIONS))} or None")
        if self.settings.engine != FUSED and partition is not None:
            raise ValueError('only engine="fused" has partitions')
        self.settings.partition = partition

    def set_cuda_graphs(self, use: bool | str) -> None:
        """Takes effect at the next step. What was recorded stays, with its memory, until `release_graphs`."""
        self.settings.set_cuda_graphs(use)
        for session in self._sessions:
            session.runtime.allow_cuda_graphs()

    def set_slices(self, use: bool | str) -> None:
        """Takes effect at the next step."""
        self.settings.set_slices(use)

    def set_arena(self, use: bool | str) -> None:
        """Takes effect at the next step."""
        self.settings.set_arena(use)

    def release_arena(self) -> None:
        """Gives the block back; the next step in an arena makes another one."""
        for session in self._sessions:
            session.runtime.release_arena()

    def release_graphs(self) -> None:
        for session in self._sessions:
            session.runtime.release_cuda_graphs()

    def plan_ahead(self, outside_bytes: int | None = None) -> None:
        """Plans for the budget now instead of at the next call. Plans for other budgets are dropped.

        outside_bytes: memory that will be in use beside the step; by default, what was in use last.
        """
        if self.settings.together is None:
            self.session.plan_is_given = False
            self.session.runtime.drop_plans()
        self.session.runtime.plan_ahead(self.outside_bytes if outside_bytes is None else outside_bytes)

    def use(self, plan: _core.Plan, planner: str) -> _torch.PlanAtWork:
        """Uses a plan that was made for `graph` elsewhere from the next step on, and turns CUDA graphs off. The result
        can be passed to `use_again`, with everything that was measured of it."""
        return self._take(plan, planner, "this plan")

    def use_again(self, taken: _torch.PlanAtWork) -> None:
        session = self.session
        session.runtime.use(taken)
        session.plan_is_given = True

    def save(self, path: str | Path) -> None:
        """Writes the plan as *.plan.json, and its graph beside it as *.graph.json."""
        path = Path(path)
        file = _core.PlanFile(self.graph, self.costs, self.actions, planner=self.planner,
                              budget_bytes=self.at_work.room_bytes or 0)
        path.write_text(file.format())
        stem = path.name.removesuffix(".json").removesuffix(".plan")
        path.with_name(f"{stem}.graph.json").write_text(
            _core.format_graph(self.graph, self.costs))

    def load(self, path: str | Path) -> None:
        """Uses the plan in a file for steps of the same shapes from now on; with engine="fused", of the same partition."""
        path = Path(path)
        file = _core.PlanFile.parse(path.read_text(), source=str(path))
        self._take(file.plan, file.planner, str(path))

    def _take(self, plan: _core.Plan, planner: str, source: str) -> _torch.PlanAtWork:
        session = self.session
        taken = session.runtime.use(plan.capsule(), planner, source)
        session.plan_is_given = True
        return taken

    def report(self, path: str | Path, *, curve_seconds: float = CURVE_SECONDS) -> Path:
        """Writes the plan as one HTML file: memory over the step, predicted and measured, what is kept and what is
        computed again, and time against memory. If the name ends in .json, the same is written as data.

        curve_seconds: how long to plan at all budgets, for time against memory; 0 leaves that part out.
        """
        if self.online is not None:
            return self.online.report(path, curve_seconds=curve_seconds)
        write_report(Path(path), self.graph, self.costs, self.actions, **self._facts(curve_seconds))
        log.info("the report of %s: %s", self.session.name, path)
        return Path(path)

    def trace(self, path: str | Path) -> Path:
        """Writes the planned step for Perfetto and chrome://tracing."""
        if self.online is not None:
            return self.online.trace(path)
        Path(path).write_text(_core.trace_json(self.graph, self.costs, self.actions, **self._facts()))
        return Path(path)

    def snapshot(self, path: str | Path) -> Path:
        """Writes the planned step for PyTorch's memory viewer (pytorch.org/memory_viz)."""
        if self.online is not None:
            return self.online.snapshot(path)
        write_snapshot(Path(path), self.graph, self.costs, self.actions)
        return Path(path)

    def _repr_html_(self) -> str:
        return notebook_html(self.graph, self.costs, self.actions, **self._facts()) if self.ready else f"<p>{self!r}</p>"

    def _facts(self, curve_seconds: float = 0.0) -> Facts:
        planner = self.session.settings.options.planner
        points = planning.curve(self.graph, self.costs, planner, curve_seconds).points if curve_seconds else []
        return {"planner": self.planner, "budget_bytes": self.budget_bytes or 0,
                "outside_bytes": self.outside_bytes, "measured": self.measured_bytes(), "curve": points,
                "facts": machine_facts(self.session.device) | ({"slices": self.slices_line} if self.slices > 1 else {})}

    def measured_bytes(self) -> tuple[list[int], list[int]] | None:
        """Bytes on the device during and after every action of the plan, if a step was measured action by action."""
        return self.at_work.measured

    def __repr__(self) -> str:
        if self.online is not None:
            return (f"ModelPlan(online, budget {_core.format_bytes(self.online.budget_bytes)}, "
                    f"{steps_line(self.online.summary)})")
        if not self.ready:
            return "ModelPlan(not made yet)"
        percent = planning.recomputation_percent(self.recompute_ns, self.time_ns - self.wait_ns)
        return (f"ModelPlan(peak {_core.format_bytes(self.peak_bytes)}, recomputation {percent:.1f} %, "
                f"planner {self.planner}{f', {self.slices} slices' if self.slices > 1 else ''})")

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """A copy of the model is a plain model, which a process without Reprise can load."""
        return type(None), ()


def _op_at(plan: _core.Plan, action: int) -> int:
    """The op that runs at an action, or next after it."""
    return planning.ops_in(plan.actions[action:])[0]


def explain(model: torch.nn.Module) -> Explanation | OnlineExplanation | Division:
    """What the plan of the latest step keeps and computes again, by module. For a model that runs in the online mode: what
    the mode has done. For one that has regions: how they share the budget."""
    plan = model.__dict__.get("plan")
    if isinstance(plan, DividedPlan):
        return plan.explanation()
    if not isinstance(plan, ModelPlan):
        raise RepriseError("this model was not compiled by reprise.compile, so it has no plan")
    if plan.online is not None:
        return _explain_online(plan.settings.name, plan.online)
    session, graph, costs = plan.session, plan.graph, plan.costs
    times = _core.timeline(graph, costs, plan.actions)
    op = _op_at(plan.actions, times.peak_action)
    return Explanation(
        model=session.name, planner=plan.planner, budget_bytes=plan.budget_bytes, peak_bytes=plan.peak_bytes,
        measured_peak_bytes=plan.at_work.measured_peak_bytes,
        plain_peak_bytes=_core.solve(graph, costs, planner="none").simulation.peak_bytes + plan.outside_bytes,
        outside_bytes=plan.outside_bytes, optimizer_peak_bytes=session.settings.optimizer_peak_bytes, time_ns=plan.time_ns,
        recompute_ns=plan.recompute_ns, wait_ns=plan.wait_ns, host_peak_bytes=plan.host_peak_bytes,
        parked_bytes=plan.parked_bytes, profile_seconds=plan.profile_seconds,
        planning_seconds=plan.planning_seconds, modules=module_rows(graph, costs, plan.actions),
        arena=arena_line(plan.arena), slices=plan.slices_line,
        loss=loss_line(graph, costs, plan.peak_bytes, plan.defers),
        communication=communication_line(graph, costs, plan.actions, plan.exposed_ns),
        at_peak=f"during {graph.op_name(op)} of {graph.scope_name(op) or 'the model itself'}")


def _explain_online(name: str, mode: online) -> OnlineExplanation:
    done = mode.summary
    return OnlineExplanation(
        model=name, budget_bytes=mode.budget_bytes, peak_bytes=done.peak_bytes, plain_peak_bytes=done.plain_peak_bytes,
        calls=done.calls, call_ns=done.call_ns, evictions=done.evictions, repeated_calls=done.repeated_calls,
        recompute_ns=done.recompute_ns, steps=done.steps, followed_steps=done.followed_steps, departures=done.departures,
        scripts=done.scripts, planning_seconds=done.planning_seconds)
