"""The best plan for a budget, from the core's planners or from a file of plans found before."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from dataclasses import dataclass
from typing import Any

from . import _core, cache
from .progress import Progress

log = logging.getLogger("reprise")

AUTO = "auto"
FORMAT = 2  # of the file


@dataclass(frozen=True)
class Found:
    """A plan for a graph at a budget, or (plan None) the smallest budget that has one."""

    plan: _core.Plan | None
    planner: str
    simulation: _core.Simulation | None
    smallest_budget_bytes: int
    seconds: float = 0.0
    smallest: Found | None = None  # where there is no plan: the one that needs smallest_budget_bytes
    stopped_after: float | None = None  # seconds; None: the search came to its end


def recomputation_percent(recompute_ns: int, time_ns: int) -> float:
    """Of the step without recomputation: the one meaning that texts give it."""
    return 100 * recompute_ns / max(time_ns - recompute_ns, 1)


def check_planner(planner: str) -> None:
    if planner not in _core.planner_names():
        raise ValueError(f"unknown planner '{planner}'; there are {', '.join(_core.planner_names())}")


def find(graph: _core.Graph, budget_bytes: int | None, planner: str, seconds: float) -> Found:
    """The fastest plan within the budget. Without one, the plan without recomputation.

    Plans found for other budgets of the same graph count too: with what is in the cache, more
    budget never gives a slower plan, and what was once named as the smallest budget has one,
    however little time there is. A search that ran out of time is made again when there is more."""
    begin = time.monotonic()
    if budget_bytes is None:
        solution = _core.solve(graph, planner="none")
        return Found(solution.plan, "none", solution.simulation, 0, time.monotonic() - begin)
    key = _key(graph, planner)
    known = _from_cache(key, graph)
    if known.is_worth_a_search(budget_bytes, seconds):
        known = _remember(key, graph, budget_bytes, _search(graph, budget_bytes, planner, seconds))
    found = known.best(budget_bytes)
    log.info("planned in %.2f s: %s", time.monotonic() - begin, found.planner or "infeasible")
    return Found(found.plan, found.planner, found.simulation, found.smallest_budget_bytes,
                 time.monotonic() - begin)


def with_times(graph: _core.Graph, times_ns: dict[int, int]) -> _core.Graph:
    """The same graph with other times of some ops."""
    content = json.loads(graph.format())
    for op, time_ns in times_ns.items():
        content["ops"][op]["time_ns"] = time_ns
    return _core.Graph.parse(json.dumps(content), source=graph.name)


def curve(graph: _core.Graph, planner: str, seconds: float) -> _core.Curve:
    """The best plans over all budgets, as far as they are found in that time."""
    deadline = time.monotonic() + seconds
    with Progress("planning") as progress:
        found = _core.curve(graph, planner=planner, progress=progress,
                            should_stop=lambda: time.monotonic() > deadline)
    log.info("planned at all budgets in %.2f s: %d plans", seconds - deadline + time.monotonic(), len(found.points))
    return found


def smallest_budget_bytes(graph: _core.Graph, planner: str, seconds: float) -> int:
    """Of all plans known after a search; `find` has one for it from then on."""
    known = _remember(_key(graph, planner), graph, 0, _search(graph, 0, planner, seconds))
    return known.best(0).smallest_budget_bytes


def carry_over(before: _core.Graph, graph: _core.Graph, planner: str) -> None:
    """What is known for a graph is known for the same one with other costs."""
    plans = _from_cache(_key(before, planner), before).plans
    if not plans:
        return
    key = _key(graph, planner)
    known = _from_cache(key, graph)
    for old in plans:
        known.keep(Found(old.plan, old.planner, _core.simulate(graph, old.plan), 0))
    _to_cache(key, known)


def _search(graph: _core.Graph, budget_bytes: int, planner: str, seconds: float) -> Found:
    deadline = time.monotonic() + seconds
    with Progress("planning") as progress:
        solution = _core.solve(graph, planner=planner, budget_bytes=budget_bytes, progress=progress,
                               should_stop=lambda: time.monotonic() > deadline)
    stopped_after = seconds if time.monotonic() > deadline else None
    if solution.plan.steps and solution.simulation.peak_bytes <= budget_bytes:
        return Found(solution.plan, planner, solution.simulation, 0, stopped_after=stopped_after)
    plan = solution.smallest_plan
    smallest = None if plan is None else Found(plan, planner, _core.simulate(graph, plan), 0)
    return Found(None, "", None, solution.smallest_budget_bytes or 0, smallest=smallest, stopped_after=stopped_after)


@dataclass
class _Known:
    """All that was found for a graph by one planner."""

    plans: list[Found]
    # budget -> 0 where it had a plan, else the smallest budget that had one; and what stopped the search, as in Found
    asked: dict[str, tuple[int, float | None]]

    def is_worth_a_search(self, budget_bytes: int, seconds: float) -> bool:
        _, stopped_after = self.asked.get(str(budget_bytes), (0, -1.0))
        return stopped_after is not None and stopped_after < seconds

    def add(self, budget_bytes: int, found: Found) -> None:
        if found.plan is None and found.smallest is None:
            return  # stopped too early to know anything
        self.asked[str(budget_bytes)] = (found.smallest_budget_bytes, found.stopped_after)
        self.keep(found if found.plan is not None else found.smallest)

    def keep(self, found: Found) -> None:
        if not any(_beats(p, found) for p in self.plans):
            self.plans = [p for p in self.plans if not _beats(found, p)] + [found]

    def best(self, budget_bytes: int) -> Found:
        fitting = [p for p in self.plans if p.simulation.peak_bytes <= budget_bytes]
        if fitting:
            return min(fitting, key=lambda p: p.simulation.time_ns)
        return Found(None, "", None, min((p.simulation.peak_bytes for p in self.plans), default=0))


def _beats(new: Found, old: Found) -> bool:
    return (new.simulation.peak_bytes <= old.simulation.peak_bytes
            and new.simulation.time_ns <= old.simulation.time_ns)


def _key(graph: _core.Graph, planner: str) -> str:
    text = f"{_core.__version__}, format {FORMAT}\n{planner}\n{graph.format()}"
    return f"plans/{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


# What could not be written, so that this process at least knows it.
_unwritten: dict[str, _Known] = {}


def _remember(key: str, graph: _core.Graph, budget_bytes: int, found: Found) -> _Known:
    known = _from_cache(key, graph)  # again: another process may have written while this one searched
    known.add(budget_bytes, found)
    _to_cache(key, known)
    return known


def _from_cache(key: str, graph: _core.Graph) -> _Known:
    if key in _unwritten:
        return _unwritten[key]
    stored = cache.read(key)
    if stored is not None:
        try:
            return _known_from(stored, graph)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            cache.refuse(key, error)
    return _Known([], {})


def _known_from(stored: dict[str, Any], graph: _core.Graph) -> _Known:
    plans = []
    for entry in stored["plans"]:
        plan = _core.Plan.from_bytes(bytes.fromhex(entry["plan"]))
        wrong = _core.validate(graph, plan)
        if wrong is not None:
            raise ValueError(wrong)
        plans.append(Found(plan, str(entry["planner"]), _core.simulate(graph, plan), 0))
    asked = {str(int(budget)): (int(smallest), None if stopped_after is None else float(stopped_after))
             for budget, (smallest, stopped_after) in stored["asked"].items()}
    known = _Known(plans, asked)
    for budget, (smallest, _) in asked.items():
        promised = smallest or int(budget)
        if known.best(promised).plan is None:
            raise ValueError(f"it has no plan within {promised} bytes")
    return known


def _to_cache(key: str, known: _Known) -> None:
    plans = [{"planner": p.planner, "plan": p.plan.to_bytes().hex()} for p in known.plans]
    if cache.write(key, {"plans": plans, "asked": known.asked}):
        _unwritten.pop(key, None)
    else:
        _unwritten[key] = known
