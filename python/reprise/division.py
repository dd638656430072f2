"""Divides one budget among the regions of a step, each of which has plans of its own.

A region's forward runs, others run after it, and its backward comes when theirs are done: what it keeps in between lies beside
all of them. So plans are chosen together: the fastest ones such that before every forward and backward, what earlier regions
keep, what the region itself takes, and what lies beside all regions fit the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from . import _core, planning

PEAKS = 8  # between that of the plan without recomputation and the lowest
KEPT_SHARES = (0.92, 0.84, 0.76, 0.68, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)  # of what is kept without recomputation


@dataclass(frozen=True)
class Choice:
    """A plan of a region, and the bytes that it takes above those of its inputs."""

    plan: _core.Plan
    planner: str
    forward_bytes: int  # at the highest instant of forward
    kept_bytes: int  # from forward to backward
    growth_bytes: int  # at the highest instant of backward, above what is there when it begins
    time_ns: int
    recompute_ns: int

    @property
    def needs(self) -> tuple[int, int, int, int]:
        return self.kept_bytes, self.forward_bytes, self.kept_bytes + self.growth_bytes, self.time_ns


@dataclass(frozen=True)
class Call:
    """A call of a region in a step: its plans, and what lies beside everything that regions keep."""

    choices: Sequence[Choice]
    before_forward: int
    before_backward: int
    after: int  # the most between calls, while this region and the earlier ones keep their part

    def fits(self, choice: Choice, kept_before: int, room: int) -> bool:
        return self.most(choice, kept_before) <= room

    def most(self, choice: Choice, kept_before: int) -> int:
        """Bytes at the highest instant while earlier regions keep so much."""
        kept = kept_before + choice.kept_bytes
        return max(self.before_forward + kept_before + choice.forward_bytes, self.before_backward + kept + choice.growth_bytes,
                   self.after + kept)


def divide(calls: Sequence[Call], room: int, most_states: int = 256) -> list[Choice] | None:
    """The choices of least time that fit; None if there are none. The calls come in the order of forward.

    most_states: that are kept while regions are decided one after the other.
    """
    states: list[_State] = [(0, 0, None)]
    for call in calls:
        reached: list[_State] = []
        for kept, time_ns, path in states:
            reached += ((kept + choice.kept_bytes, time_ns + choice.time_ns, (choice, path))
                        for choice in call.choices if call.fits(choice, kept, room))
        states = _thinned(_undominated(reached), most_states)
    if not states:
        return None
    path = min(states, key=lambda state: state[1])[2]
    chosen = []
    while path is not None:
        chosen.append(path[0])
        path = path[1]
    return chosen[::-1]


_Path = tuple[Choice, "_Path"] | None
_State = tuple[int, int, _Path]  # bytes kept so far, time, and how


def _undominated(states: list[_State]) -> list[_State]:
    """By bytes; each is faster than all that keep less."""
    left: list[_State] = []
    for state in sorted(states, key=lambda state: state[:2]):
        if not left or state[1] < left[-1][1]:
            left.append(state)
    return left


def _thinned(states: list[_State], most: int) -> list[_State]:
    """The first and the last stay: what fits, and what is fastest so far."""
    if len(states) <= most:
        return states
    return [states[i * (len(states) - 1) // (most - 1)] for i in range(most)]


def smallest_room(calls: Sequence[Call]) -> int:
    """For which there are choices."""
    most = sum(max(choice.kept_bytes for choice in call.choices) for call in calls) + max(
        call.most(choice, 0) for call in calls for choice in call.choices)
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _has_choices(calls, middle) else (middle + 1, high)
    return low


def _has_choices(calls: Sequence[Call], room: int) -> bool:
    kept = 0
    for call in calls:
        fitting = [choice.kept_bytes for choice in call.choices if call.fits(choice, kept, room)]
        if not fitting:
            return False
        kept += min(fitting)  # whoever comes later has no use for more
    return True


# -- Regions whose calls are not nested in one another, such as the micro-batches of a pipeline.


@dataclass(frozen=True)
class Event:
    """Forward or backward of a call, and what lies beside everything that open calls keep."""

    call: int
    is_backward: bool
    beside: int  # when it begins
    gap: int  # the most since the event before


def highest(events: Sequence[Event], chosen: Sequence[Choice]) -> int:
    """Bytes at the highest instant."""
    kept, most = 0, 0
    for event in events:
        choice = chosen[event.call]
        own = choice.growth_bytes if event.is_backward else choice.forward_bytes
        most = max(most, event.gap + kept, event.beside + kept + own)
        kept += -choice.kept_bytes if event.is_backward else choice.kept_bytes
    return most


def divide_alike(events: Sequence[Event], groups: Sequence[int], choices: Sequence[Sequence[Choice]],
                 room: int) -> list[Choice] | None:
    """One choice for all calls of a group. With one group it is the fastest that fits. With several, each is made faster in
    turn, beginning with those that take least.

    groups: of each call. choices: of each group."""
    def most(chosen: Sequence[Choice]) -> int:
        return highest(events, [chosen[group] for group in groups])

    chosen = _lowest(choices, most)
    if most(chosen) > room:
        return None
    while True:
        faster = [[*chosen[:i], choice, *chosen[i + 1:]] for i, before in enumerate(chosen) for choice in choices[i]
                  if choice.time_ns < before.time_ns]
        fitting = [made for made in faster if most(made) <= room]
        if not fitting:
            return [chosen[group] for group in groups]
        chosen = min(fitting, key=lambda made: sum(made[group].time_ns for group in groups))


def smallest_room_alike(events: Sequence[Event], groups: Sequence[int], choices: Sequence[Sequence[Choice]]) -> int:
    def most(chosen: Sequence[Choice]) -> int:
        return highest(events, [chosen[group] for group in groups])

    return most(_lowest(choices, most))


def _lowest(choices: Sequence[Sequence[Choice]], most: Callable[[Sequence[Choice]], int]) -> list[Choice]:
    chosen = [min(each, key=lambda choice: choice.needs) for each in choices]
    for i in (*range(len(chosen)), *range(len(chosen))):
        chosen[i] = min(choices[i], key=lambda choice: most([*chosen[:i], choice, *chosen[i + 1:]]))
    return chosen


# -- Plans of a region.


def choices_of(graph: _core.Graph, costs: _core.Costs, planner: str, seconds: float, with_recomputation: bool) -> list[Choice]:
    """Plans of a region: without recomputation, and from there to those that keep least and that peak lowest."""
    costs = _with_caller(graph, costs, 0)
    share = seconds / (PEAKS + 1 + 3 * len(KEPT_SHARES))
    plain = _choice(graph, costs, planning.find(graph, costs, None, planner, share))
    if not with_recomputation:
        return [plain]
    found = [plain]
    start, given = _start_bytes(graph, costs), _given_bytes(graph, costs)
    highest = _core.simulate(graph, costs, plain.plan).peak_bytes
    lowest = planning.smallest_budget_bytes(graph, costs, planner, share)
    peaks = [highest - i * (highest - lowest) // PEAKS for i in range(PEAKS + 1)]
    for peak in peaks[1:]:
        found += _found(graph, costs, peak, planner, share)
    for peak in peaks[::PEAKS // 2]:
        for part in KEPT_SHARES:
            # The caller is made to need what the plan may not keep.
            workspace = peak - start - given - int(part * plain.kept_bytes)
            limited = _with_caller(graph, costs, max(0, workspace))
            best = planning.find(graph, limited, peak, planner, share)
            if best.plan is not None:
                found.append(_choice(graph, costs, best))
                continue
            found += _found(graph, limited, best.smallest_budget_bytes, planner, share, costs)
            break  # it cannot keep less
    return _best(found)


def _found(graph: _core.Graph, limited: _core.Costs, budget: int, planner: str, seconds: float,
           costs: _core.Costs | None = None) -> list[Choice]:
    found = planning.find(graph, limited, budget, planner, seconds)
    return [] if found.plan is None else [_choice(graph, costs or limited, found)]


def _best(choices: Iterable[Choice]) -> list[Choice]:
    """Those that no other one beats in everything, fastest first."""
    left: list[Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.time_ns, *choice.needs)):
        if not any(all(a <= b for a, b in zip(other.needs, choice.needs, strict=True)) for other in left):
            left.append(choice)
    return left


def _choice(graph: _core.Graph, costs: _core.Costs, found: planning.Found) -> Choice:
    assert found.plan is not None  # asked by the callers
    times = _core.timeline(graph, costs, found.plan)
    caller = next(i for i, (kind, op) in enumerate(found.plan.actions) if kind in planning.COMPUTES and op == graph.caller_op)
    before = times.after_bytes[caller - 1] if caller > 0 else times.start_bytes
    return Choice(
        plan=found.plan, planner=found.planner,
        forward_bytes=max(times.during_bytes[:caller], default=before) - times.start_bytes,
        kept_bytes=before - times.start_bytes,
        growth_bytes=max(0, max(times.during_bytes[caller + 1:], default=0) - times.after_bytes[caller]),
        time_ns=times.total.time_ns, recompute_ns=times.total.recompute_ns)


def _with_caller(graph: _core.Graph, costs: _core.Costs, workspace: int) -> _core.Costs:
    """A caller that keeps nothing, and needs so much for a moment."""
    caller = graph.caller_op
    assert caller is not None  # every captured step has one
    workspaces, values = costs.workspace_bytes, costs.value_bytes
    workspaces[caller] = workspace
    for value in graph.outputs(caller):
        if not graph.readers(value):
            values[value] = 0
    return _core.Costs(costs.time_ns, workspaces, values, costs.link)


def _start_bytes(graph: _core.Graph, costs: _core.Costs) -> int:
    return sum(costs.value_bytes[value] for value in range(graph.num_values) if graph.residence(value) == "resident")


def _given_bytes(graph: _core.Graph, costs: _core.Costs) -> int:
    """The bytes of the gradients that the caller gives."""
    assert graph.caller_op is not None
    return sum(costs.value_bytes[value] for value in graph.outputs(graph.caller_op))
