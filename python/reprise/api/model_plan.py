"""model.plan: the plan at work, for people."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import _core, planning
from ..errors import RepriseError
from ..region import Planned, Region
from ..show.explanation import Explanation, module_rows
from ..show.report import machine_facts, notebook_html, write_report
from ..show.snapshot import write_snapshot
from .arguments import byte_count
from .settings import Settings

log = logging.getLogger("reprise")

CURVE_SECONDS = 10.0


@dataclass(frozen=True)
class CudaGraphsUse:
    """How the steps of a model run as CUDA graphs."""

    recorded: bool  # the next step may be a replay
    pending: bool  # a forward whose backward has not run holds their memory
    recordings: int
    refused: str  # why there are none
    pool_bytes: int
    hidden_bytes: int  # of the pool, in use at every replay and counted by no allocator


class ModelPlan:
    """The plan of the latest step. Before the first call there is none: `ready` is False."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._regions: list[Region] = []
        self.hooks: list[Any] = []  # of the optimizer

    def add(self, region: Region) -> None:
        self._regions.append(region)

    def release(self) -> None:
        """Gives back what plans keep between steps. Compiled code outlives its model."""
        for region in self._regions:
            region.release()
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    @property
    def ready(self) -> bool:
        return any(region.current is not None for region in self._regions)

    @property
    def region(self) -> Region:
        ready = [region for region in self._regions if region.current is not None]
        if not ready:
            raise RepriseError("there is no plan yet: call the model once with gradients enabled")
        return max(ready, key=lambda region: region.last_call)

    @property
    def _planned(self) -> Planned:
        return self.region.current

    @property
    def peak_bytes(self) -> int:
        """Predicted: all that is allocated on the device at the highest instant of the step."""
        return self._planned.peak_bytes + self.outside_bytes

    @property
    def measured_peak_bytes(self) -> int | None:
        """The same of the latest step that ran to its end, from the allocator."""
        return self._planned.measured_peak_bytes

    @property
    def budget_bytes(self) -> int | None:
        return self.region.settings.budget_bytes

    @property
    def time_ns(self) -> int:
        return self._planned.found.simulation.time_ns

    @property
    def recompute_ns(self) -> int:
        return self._planned.found.simulation.recompute_ns

    @property
    def planner(self) -> str:
        return self._planned.found.planner

    @property
    def outside_bytes(self) -> int:
        """On the device, but no part of the step."""
        return self._planned.outside_bytes

    @property
    def profile_seconds(self) -> float:
        return self.region.profile_seconds

    @property
    def planning_seconds(self) -> float:
        return self.region.planning_seconds

    @property
    def graph(self) -> _core.Graph:
        return self.region.graph

    @property
    def steps(self) -> _core.Plan:
        return self._planned.found.plan

    @property
    def cuda_graphs(self) -> CudaGraphsUse:
        """How steps run as CUDA graphs."""
        graphs = self.region.graphs
        recorded = None if graphs is None else graphs.recorded
        return CudaGraphsUse(
            recorded is not None, recorded is not None and recorded.pending, 0 if graphs is None else graphs.recordings,
            "" if graphs is None else graphs.refused, 0 if recorded is None else recorded.pool_reserved_bytes,
            0 if recorded is None else recorded.hidden_bytes)

    def smallest_budget_bytes(self, seconds: float = 10.0) -> int:
        """The smallest budget found in that time, with what lies beside the step now."""
        planner = self.region.settings.planner
        return self.outside_bytes + planning.smallest_budget_bytes(self.graph, planner, seconds)

    def set_budget(self, budget: str | int | None) -> None:
        """From the next step on; nothing is captured or measured again."""
        self._own_settings.budget_bytes = None if budget is None else byte_count("budget", budget)

    def set_cuda_graphs(self, use: bool | str) -> None:
        """From the next step on. What was recorded stays, with its memory, until `release_graphs`."""
        self._own_settings.set_cuda_graphs(use)
        for region in self._regions:
            region.set_cuda_graphs(use)

    def release_graphs(self) -> None:
        for region in self._regions:
            region.release_graphs()

    def plan_ahead(self, outside_bytes: int | None = None) -> None:
        """Plans for the budget now instead of at the next call. Plans for other budgets are dropped.

        outside_bytes: what will lie on the device beside the step; by default, what lay there last.
        """
        self.region.plan_ahead(self.outside_bytes if outside_bytes is None else outside_bytes)

    def use(self, plan: _core.Plan, planner: str) -> None:
        """Takes a plan that was made for `graph` elsewhere, from the next step on."""
        self.region.use(plan, planner, "this plan")

    @property
    def _own_settings(self) -> Settings:
        if self._settings is None:
            raise RepriseError("this is the plan of a copy: compile the model it belongs to")
        return self._settings

    def save(self, path: str | Path) -> None:
        """Writes the plan as *.plan.json, and its graph beside it as *.graph.json."""
        path = Path(path)
        graph = self.graph
        found = self._planned.found
        file = _core.PlanFile(graph, found.plan, planner=found.planner,
                              budget_bytes=self._planned.room_bytes or 0)
        path.write_text(file.format())
        stem = path.name.removesuffix(".json").removesuffix(".plan")
        path.with_name(f"{stem}.graph.json").write_text(graph.format())

    def load(self, path: str | Path) -> None:
        """Uses the plan of a file for the steps of the same shapes from now on."""
        path = Path(path)
        file = _core.PlanFile.parse(path.read_text(), source=str(path))
        self.region.use(file.plan, file.planner, str(path))

    def report(self, path: str | Path, *, curve_seconds: float = CURVE_SECONDS) -> Path:
        """Writes the plan as one HTML file: memory over the step, predicted and measured, what is kept and
        computed again, time against memory. With a name that ends in .json, the same as data.

        curve_seconds: how long to plan at all budgets, for time against memory; 0 leaves it out.
        """
        write_report(Path(path), self.graph, self.steps, **self._facts(curve_seconds))
        log.info("the report of %s: %s", self.region.name, path)
        return Path(path)

    def trace(self, path: str | Path) -> Path:
        """Writes the planned step for Perfetto and chrome://tracing."""
        Path(path).write_text(_core.trace_json(self.graph, self.steps, **self._facts()))
        return Path(path)

    def snapshot(self, path: str | Path) -> Path:
        """Writes the planned step for PyTorch's memory viewer (pytorch.org/memory_viz)."""
        write_snapshot(Path(path), self.graph, self.steps)
        return Path(path)

    def _repr_html_(self) -> str:
        return notebook_html(self.graph, self.steps, **self._facts()) if self.ready else f"<p>{self!r}</p>"

    def _facts(self, curve_seconds: float = 0.0) -> dict[str, Any]:
        """What reports tell beside graph and plan."""
        points = planning.curve(self.graph, self.region.settings.planner, curve_seconds).points if curve_seconds else []
        return {"planner": self.planner, "budget_bytes": self.budget_bytes or 0,
                "outside_bytes": self.outside_bytes, "measured": self.measured_bytes(), "curve": points,
                "facts": machine_facts(self.region.device)}

    def measured_bytes(self) -> tuple[list[int], list[int]] | None:
        """Bytes on the device during and after every step of the plan, where a step was looked at op by op.
        Where forward ended, the caller's come in between."""
        record = self._planned.record
        if record is None:
            return None
        caller = self.graph.caller_op
        boundary = next(i for i, (kind, op) in enumerate(self.steps.steps) if kind != _core.Plan.FREE and op == caller)
        during, after = record.trace.during_bytes, record.trace.after_bytes
        during.insert(boundary, record.caller_peak_bytes)
        after.insert(boundary, record.caller_end_bytes)
        return [b + record.base_bytes for b in during], [b + record.base_bytes for b in after]

    def __repr__(self) -> str:
        if not self.ready:
            return "ModelPlan(not made yet)"
        return (f"ModelPlan(peak {_core.format_bytes(self.peak_bytes)}, recomputation "
                f"{planning.recomputation_percent(self.recompute_ns, self.time_ns):.1f} %, planner {self.planner})")

    # A copy of the model is a plain model.
    def __deepcopy__(self, _: Any) -> ModelPlan:
        return ModelPlan()

    def __reduce__(self) -> tuple:
        return (ModelPlan, ())


def explain(model: torch.nn.Module) -> Explanation:
    """What the plan of the latest step keeps and computes again, by module."""
    plan = model.__dict__.get("plan")
    if not isinstance(plan, ModelPlan):
        raise RepriseError("this model was not compiled by reprise.compile, so it has no plan")
    region, graph = plan.region, plan.graph
    outside = plan.outside_bytes
    times = _core.timeline(graph, plan.steps)
    kind, op = plan.steps.steps[times.peak_step]
    return Explanation(
        model=region.name, planner=plan.planner, budget_bytes=plan.budget_bytes, peak_bytes=plan.peak_bytes,
        measured_peak_bytes=plan.measured_peak_bytes,
        plain_peak_bytes=_core.solve(graph, planner="none").simulation.peak_bytes + outside,
        outside_bytes=outside, optimizer_peak_bytes=region.settings.optimizer_peak_bytes, time_ns=plan.time_ns,
        recompute_ns=plan.recompute_ns, profile_seconds=plan.profile_seconds,
        planning_seconds=plan.planning_seconds, modules=module_rows(graph, plan.steps),
        at_peak=f"during {graph.op_name(op)} of {graph.scope_name(op) or 'the model itself'}")
