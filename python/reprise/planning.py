"""The best plan for a budget, from the book of plans found earlier or from the core's planners."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _core, switches
from .progress import Progress

if TYPE_CHECKING:
    from ._torch import PlanBook

FormKey = tuple[int, bool]  # in how many slices a step is, and whether sums are added up over them
WHOLE: FormKey = (1, False)
AUTO = "auto"
COMPUTES = (_core.ActionKind.COMPUTE, _core.ActionKind.COMPUTE_IN_PLACE)  # the actions that run an op


@dataclass(frozen=True)
class Found:
    """A plan for a step at a budget, or (plan None) the smallest budget that has one."""

    plan: _core.Plan | None
    planner: str
    simulation: _core.Simulation | None
    smallest_budget_bytes: int
    seconds: float  # how long the search took
    form: FormKey = WHOLE

    @property
    def slices(self) -> int:
        return self.form[0]


def recomputation_percent(recompute_ns: int, time_ns: int) -> float:
    """Recomputation in percent of the step without recomputation, as in all texts."""
    return 100 * recompute_ns / max(time_ns - recompute_ns, 1)


def ops_in(actions: Iterable[tuple[_core.ActionKind, int]]) -> list[int]:
    """The ops that run, in order, as often as they do."""
    return [op for kind, op in actions if kind in COMPUTES]


def check_planner(planner: str) -> None:
    if planner not in _core.planner_names():
        raise ValueError(f"unknown planner '{planner}'; the planners are {', '.join(_core.planner_names())}")


def find(graph: _core.Graph, costs: _core.Costs, budget_bytes: int | None, planner: str, seconds: float) -> Found:
    """The fastest plan within the budget, or, without a budget, the plan without recomputation."""
    begin = time.monotonic()
    found = _book(graph, costs, planner).find(budget_bytes, seconds)
    taken = time.monotonic() - begin
    if found.plan is None:
        return Found(None, "", None, found.smallest_budget_bytes, taken)
    plan = _core.Plan.from_capsule(found.plan)
    return Found(plan, found.planner, _core.simulate(graph, costs, plan), 0, taken)


def find_in_forms(form_of: Callable[[FormKey], tuple[_core.Graph, _core.Costs] | None], use: bool | str,
                  sliceable_bytes: int, budget_bytes: int, planner: str, seconds: float, in_full: bool = True,
                  host_budget_bytes: int = 0) -> Found:
    """The fastest plan within the budget of the step whole or in slices, chosen as for a step that is called.

    form_of: the step in this form, if there is that form; WHOLE is always there.
    use: which forms may be tried, as for `slices` of reprise.compile.
    sliceable_bytes: of the chain that would be cut.
    in_full: with what is found beside the first steps.
    host_budget_bytes: that plans may store in the host's memory; above 0, the costs have a link to it.
    """
    from .native import _torch

    known: dict[FormKey, tuple[_core.Graph, _core.Costs]] = {}

    def capsules(key: FormKey) -> tuple[object, object] | None:
        form = form_of(key)
        if form is None:
            return None
        known[key] = form
        return form[0].capsule(), form[1].capsule()

    begin = time.monotonic()
    waiting = switches.waiting_seconds()
    key, found = _torch.find_in_forms(capsules, use, sliceable_bytes, budget_bytes, planner, seconds,
                                      _torch.Options().waiting_seconds if waiting is None else waiting, in_full,
                                      host_budget_bytes)
    taken = time.monotonic() - begin
    if found.plan is None:
        return Found(None, "", None, found.smallest_budget_bytes, taken)
    plan = _core.Plan.from_capsule(found.plan)
    return Found(plan, found.planner, _core.simulate(*known[key], plan), 0, taken, key)


def smallest_budget_bytes(graph: _core.Graph, costs: _core.Costs, planner: str, seconds: float) -> int:
    """The smallest peak of all plans known after a search; from then on, `find` has a plan for this budget."""
    return _book(graph, costs, planner).smallest_budget_bytes(seconds)


def _book(graph: _core.Graph, costs: _core.Costs, planner: str) -> PlanBook:
    from .native import _torch  # planning at all budgets does not need torch

    return _torch.PlanBook(graph.capsule(), costs.capsule(), planner)


def curve(graph: _core.Graph, costs: _core.Costs, planner: str, seconds: float, host_budget_bytes: int = 0) -> _core.Curve:
    """The best plans over all budgets that are found in that time."""
    deadline = time.monotonic() + seconds
    with Progress("planning") as progress:
        return _core.curve(graph, costs, planner=planner, progress=progress, host_budget_bytes=host_budget_bytes,
                           should_stop=lambda: time.monotonic() > deadline)
