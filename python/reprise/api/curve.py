"""reprise.curve: time against memory, at all budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core, planning
from ..show.curve import CurvePoint, TimeMemoryCurve

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from ..forecast.batches import Form
    from ..forecast.question import Question

SECONDS = 30.0


def curve(model: _core.Graph | torch.nn.Module, inputs: Any = None, *, device: str | torch.device | None = None,
          optimizer: torch.optim.Optimizer | None = None, reserve: str | int = 0, planner: str = "auto",
          planning_seconds: float = SECONDS, profile: str | None = None, engine: str = "eager",
          slices: bool | str = True, ranks: int | None = None, bandwidth: str | int | None = None,
          param_dtype: torch.dtype | None = None, reduce_dtype: torch.dtype | None = None,
          placement: str = "shard") -> TimeMemoryCurve:
    """Time against memory of a training step, at all budgets. The step itself does not run.

    model: a model with its `inputs` (as for reprise.verify), or a graph with its costs.
    device: where it would be trained; by default where the model lies.
    optimizer, reserve: bytes that are in use beside the step, added to every peak.
    profile: "measure" runs each kind of operator by itself, "known" takes earlier measurements, "roofline" estimates.
        The default is "measure" on the model's own device and "roofline" on another.
    engine: as for reprise.compile.
    slices: as for reprise.compile: where these take less memory, there are points of the step in slices. Unless the profile is
        "measure", they are expected to have the bits of whole calls.
    ranks, bandwidth, param_dtype, reduce_dtype, placement: as for reprise.preflight.
    """
    if isinstance(model, _core.Graph):
        if ranks is not None:
            raise ValueError(f"ranks={ranks} is for a model: what a graph communicates is in it")
        return curve_of(model, inputs, planner, planning_seconds)
    from .preflight import network_of, question

    if profile is None:
        profile = "measure" if device is None else "roofline"
    asked = question(model, inputs, 0, device=device, optimizer=optimizer, reserve=reserve, planner=planner,
                     planning_seconds=planning_seconds, profile=profile, engine=engine, slices=slices,
                     network=network_of(model, engine, ranks, bandwidth, param_dtype, reduce_dtype, placement))
    graph, costs, beside, counts = asked.step()
    forms = list(_forms_below(asked))
    share = planning_seconds / (1 + len(forms))
    found = curve_of(graph, costs, planner, share, beside)
    for number, form in forms:
        found = found.joined(curve_of(*form, planner, share, beside, number))
    found.name = type(model).__name__
    found.notes += asked.notes_on(counts)
    if ranks is not None:
        found.notes.append(f"one of {ranks} processes, each of which sends {bandwidth} a second at most")
    return found


def _forms_below(asked: Question) -> Iterator[tuple[int, Form]]:
    """The forms of the step in slices whose largest call takes less than that of all forms before."""
    from ..native import _torch

    whole = asked.forms.at(1, asked.batch)
    assert whole is not None  # the step was captured at this size
    lowest = _core.most_of_one_op(*whole[0])
    for number in _torch.numbers_of_slices():
        form = asked.forms.at(number, asked.batch)
        if form is not None and (floor := _core.most_of_one_op(*form[0])) < lowest:
            lowest = floor
            yield number, form[0]


def curve_of(graph: _core.Graph, costs: _core.Costs, planner: str = "auto", seconds: float = SECONDS,
             beside_bytes: int = 0, slices: int = 1) -> TimeMemoryCurve:
    planning.check_planner(planner)
    found = planning.curve(graph, costs, planner, seconds)

    def point(simulation: _core.Simulation, bound: int | None) -> CurvePoint:
        return CurvePoint(simulation.peak_bytes + beside_bytes, simulation.time_ns, simulation.recompute_ns, bound,
                          slices)

    floor = next((p.floor_bytes for p in found.points if p.floor_bytes), None)
    return TimeMemoryCurve(
        graph.name, [point(p.simulation, p.lower_bound_ns) for p in found.points],
        point(_core.solve(graph, costs, planner="none").simulation, None), floor and floor + beside_bytes, found.stopped,
        [f"stopped after {seconds:g} s: the best so far"] if found.stopped else [])
