"""reprise.curve: time against memory, at all budgets."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .. import _core, planning
from ..show.curve import CurvePoint, TimeMemoryCurve
from .arguments import byte_count

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
          placement: str = "shard", host_budget: str | int = 0,
          link: str | int | tuple[str | int, str | int] | None = None) -> TimeMemoryCurve:
    """Time against memory of a training step, at all budgets. The step itself does not run.

    model: a model with its `inputs` (as for reprise.verify), or a graph with its costs.
    device: where it would be trained; by default where the model lies.
    optimizer, reserve: bytes that are in use beside the step, added to every peak.
    profile: "measure" runs each kind of operator by itself, "known" takes earlier measurements, "roofline" estimates.
        The default is "measure" on the model's own device and "roofline" on another.
    engine: as for reprise.compile.
    slices: as for reprise.compile: where these take less memory, there are points of the step in slices. Unless the profile is
        "measure", they are expected to have the bits of whole calls.
    ranks, bandwidth, param_dtype, reduce_dtype, placement, host_budget, link: as for reprise.preflight. For a graph whose costs
        have a link, leave `link` out.
    """
    from .preflight import host_memory_of, network_of, question

    if isinstance(model, _core.Graph):
        if ranks is not None:
            raise ValueError(f"ranks={ranks} is for a model: what a graph communicates is in it")
        host = None if inputs.link is not None and link is None else host_memory_of(None, host_budget, link)
        return curve_of(model, inputs if host is None else host.beside(inputs), planner, planning_seconds,
                        host_budget_bytes=byte_count("host_budget", host_budget))

    if profile is None:
        profile = "measure" if device is None else "roofline"
    asked = question(model, inputs, 0, device=device, optimizer=optimizer, reserve=reserve, planner=planner,
                     planning_seconds=planning_seconds, profile=profile, engine=engine, slices=slices,
                     network=network_of(model, engine, ranks, bandwidth, param_dtype, reduce_dtype, placement),
                     host_budget=host_budget, link=link)
    _, _, beside, counts = asked.step()
    forms = list(_forms(asked))
    share = planning_seconds / len(forms)
    curves = [curve_of(*form, planner, share, beside, number, 0 if asked.host is None else asked.host.budget_bytes)
              for number, form in forms]
    found = functools.reduce(TimeMemoryCurve.joined, curves)
    found.name = type(model).__name__
    found.notes += asked.notes_on(counts)
    if ranks is not None:
        found.notes.append(f"one of {ranks} processes, each of which sends {bandwidth} a second at most")
    return found


def _forms(asked: Question) -> Iterator[tuple[int, Form]]:
    """The whole step, and its forms in slices that take less than all forms of their kind before."""
    from ..native import _torch

    whole = asked.form(planning.WHOLE, asked.batch)
    assert whole is not None
    yield planning.WHOLE[0], whole
    least = _torch.LeastForms(*(part.capsule() for part in whole))
    for key in _torch.forms_in_slices(asked.forms.use):
        form = asked.form(key, asked.batch)
        if form is not None and least.take_less(key, *(part.capsule() for part in form)):
            yield key[0], form


def curve_of(graph: _core.Graph, costs: _core.Costs, planner: str = "auto", seconds: float = SECONDS,
             beside_bytes: int = 0, slices: int = 1, host_budget_bytes: int = 0) -> TimeMemoryCurve:
    planning.check_planner(planner)
    found = planning.curve(graph, costs, planner, seconds, host_budget_bytes)

    def point(simulation: _core.Simulation, bound: int | None) -> CurvePoint:
        return CurvePoint(simulation.peak_bytes + beside_bytes, simulation.time_ns, simulation.recompute_ns, bound,
                          slices, simulation.host_peak_bytes)

    floor = next((p.floor_bytes for p in found.points if p.floor_bytes), None)
    return TimeMemoryCurve(
        graph.name, [point(p.simulation, p.lower_bound_ns) for p in found.points],
        point(_core.solve(graph, costs, planner="none").simulation, None), floor and floor + beside_bytes, found.stopped,
        [f"stopped after {seconds:g} s: the best so far"] if found.stopped else [])
