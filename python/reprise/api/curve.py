"""reprise.curve: time against memory, at all budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core, planning
from ..show.curve import CurvePoint, TimeMemoryCurve

if TYPE_CHECKING:
    import torch

SECONDS = 30.0


def curve(model: _core.Graph | torch.nn.Module, inputs: Any = None, *, device: str | torch.device | None = None,
          optimizer: torch.optim.Optimizer | None = None, reserve: str | int = 0, planner: str = "auto",
          planning_seconds: float = SECONDS, profile: str | None = None, engine: str = "eager") -> TimeMemoryCurve:
    """Time against memory of a training step, at all budgets. The step itself does not run.

    model: a model with its `inputs` (as for reprise.verify), or a graph with its costs.
    device: where it would be trained; by default where the model lies.
    optimizer, reserve: bytes that are in use beside the step, added to every peak.
    profile: "measure" runs each kind of operator by itself, "known" takes earlier measurements, "roofline" estimates.
        The default is "measure" on the model's own device and "roofline" on another.
    engine: as for reprise.compile.
    """
    if isinstance(model, _core.Graph):
        return curve_of(model, inputs, planner, planning_seconds)
    from .preflight import question

    if profile is None:
        profile = "measure" if device is None else "roofline"
    asked = question(model, inputs, 0, device=device, optimizer=optimizer, reserve=reserve, planner=planner,
                     planning_seconds=planning_seconds, profile=profile, engine=engine)
    graph, costs, beside, counts = asked.step()
    found = curve_of(graph, costs, planner, planning_seconds, beside)
    found.name = type(model).__name__
    found.notes += asked.notes_on(counts)
    return found


def curve_of(graph: _core.Graph, costs: _core.Costs, planner: str = "auto", seconds: float = SECONDS,
             beside_bytes: int = 0) -> TimeMemoryCurve:
    planning.check_planner(planner)
    found = planning.curve(graph, costs, planner, seconds)

    def point(simulation: _core.Simulation, bound: int | None) -> CurvePoint:
        return CurvePoint(simulation.peak_bytes + beside_bytes, simulation.time_ns, simulation.recompute_ns, bound)

    floor = next((p.floor_bytes for p in found.points if p.floor_bytes), None)
    return TimeMemoryCurve(
        graph.name, [point(p.simulation, p.lower_bound_ns) for p in found.points],
        point(_core.solve(graph, costs, planner="none").simulation, None), floor and floor + beside_bytes, found.stopped,
        [f"stopped after {seconds:g} s: the best so far"] if found.stopped else [])
