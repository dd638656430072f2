"""The best plan for a budget, from the core's planners or from a file of plans found before."""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass
from typing import Any

from . import _core, cache
from .progress import Progress

log = logging.getLogger("reprise")

AUTO = "auto"


@dataclass(frozen=True)
class Found:
    """A plan for a graph at a budget, or (plan None) the smallest budget that has one."""

    plan: _core.Plan | None
    planner: str
    simulation: _core.Simulation | None
    smallest_budget_bytes: int
    seconds: float = 0.0


def check_planner(planner: str) -> None:
    if planner not in _core.planner_names():
        raise ValueError(f"unknown planner '{planner}'; there are {', '.join(_core.planner_names())}")


def find(graph: _core.Graph, budget_bytes: int | None, planner: str, seconds: float) -> Found:
    """The fastest plan within the budget. Without one, the plan without recomputation."""
    begin = time.monotonic()
    if budget_bytes is None:
        solution = _core.solve(graph, planner="none")
        return Found(solution.plan, "none", solution.simulation, 0, time.monotonic() - begin)
    key = _key(graph, budget_bytes, planner)
    found = _from_cache(key, graph, budget_bytes)
    if found is None:
        found = _search(graph, budget_bytes, planner, seconds)
        _to_cache(key, found)
    log.info("planned in %.2f s: %s", time.monotonic() - begin, found.planner or "infeasible")
    return Found(found.plan, found.planner, found.simulation, found.smallest_budget_bytes,
                 time.monotonic() - begin)


def curve(graph: _core.Graph, planner: str, seconds: float) -> _core.Curve:
    """The best plans over all budgets, as far as they are found in that time."""
    deadline = time.monotonic() + seconds
    with Progress("planning") as progress:
        found = _core.curve(graph, planner=planner, progress=progress,
                            should_stop=lambda: time.monotonic() > deadline)
    log.info("planned at all budgets in %.2f s: %d plans", seconds - deadline + time.monotonic(), len(found.points))
    return found


def smallest_budget_bytes(graph: _core.Graph, planner: str, seconds: float) -> int:
    return _search(graph, 0, planner, seconds).smallest_budget_bytes


def _search(graph: _core.Graph, budget_bytes: int, planner: str, seconds: float) -> Found:
    deadline = time.monotonic() + seconds
    with Progress("planning") as progress:
        solution = _core.solve(graph, planner=planner, budget_bytes=budget_bytes, progress=progress,
                               should_stop=lambda: time.monotonic() > deadline)
    if solution.plan.steps and solution.simulation.peak_bytes <= budget_bytes:
        return Found(solution.plan, planner, solution.simulation, 0)
    return Found(None, "", None, solution.smallest_budget_bytes or 0)


def _key(graph: _core.Graph, budget_bytes: int, planner: str) -> str:
    text = f"{_core.__version__}\n{budget_bytes}\n{planner}\n{graph.format()}"
    return f"plans/{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _from_cache(key: str, graph: _core.Graph, budget_bytes: int) -> Found | None:
    stored = cache.read(key)
    if stored is None:
        return None
    try:
        return _found_from(stored, graph, budget_bytes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cache.refuse(key, error)
        return None


def _found_from(stored: dict[str, Any], graph: _core.Graph, budget_bytes: int) -> Found:
    if stored["plan"] is None:
        return Found(None, "", None, int(stored["smallest_budget_bytes"]))
    plan = _core.Plan.from_bytes(bytes.fromhex(stored["plan"]))
    wrong = _core.validate(graph, plan)
    if wrong is not None:
        raise ValueError(wrong)
    simulation = _core.simulate(graph, plan)
    if simulation.peak_bytes > budget_bytes:
        raise ValueError("the plan is above its budget")
    return Found(plan, str(stored["planner"]), simulation, 0)


def _to_cache(key: str, found: Found) -> None:
    cache.write(key, {
        "planner": found.planner,
        "plan": None if found.plan is None else found.plan.to_bytes().hex(),
        "smallest_budget_bytes": found.smallest_budget_bytes,
    })
