"""Which plans the regions of a model run: what lies beside them is seen in one step, and the next one is planned for it.

A step is the calls of regions in one call of the model, and their backward. In its first step every region keeps as little as
it can. From then on it is known what lies beside at every call, and the budget is divided. Whatever a step sees more of is
planned for from the next one on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _core
from ..division import (
    Call,
    Choice,
    Event,
    choices_of,
    divide,
    divide_alike,
    highest,
    smallest_room,
    smallest_room_alike,
)
from ..errors import BudgetExceeded, InfeasibleBudget
from ..native import _torch
from ..progress import Preparation
from .session import StepSession

log = logging.getLogger("reprise")

PATIENCE = 0.5  # seconds for others to free memory
LEFT_BEHIND = ("The gradients of later parts of the model are there already: set all gradients to None before you run the step "
               "again.")
GRAIN = 100  # Rooms are rounded down to this part of the budget, so that few divisions are made.


@dataclass
class Seen:
    """At a call of a region: bytes above those at the begin of the step, beside what regions keep."""

    session: StepSession
    name: str
    forward: int  # when forward begins
    gap_before_forward: int  # the most since the call before
    backward: int | None = None
    gap_before_backward: int = 0

    def join(self, other: Seen) -> None:
        """Takes the most of both."""
        self.forward = max(self.forward, other.forward)
        self.gap_before_forward = max(self.gap_before_forward, other.gap_before_forward)
        self.gap_before_backward = max(self.gap_before_backward, other.gap_before_backward)
        if other.backward is not None:
            self.backward = other.backward if self.backward is None else max(self.backward, other.backward)


@dataclass
class Pattern:
    """Steps that call the same regions with inputs of the same sizes."""

    seen: list[Seen] = field(default_factory=list)
    order: list[tuple[int, bool]] = field(default_factory=list)  # which call, and whether it is its backward
    steps: int = 0
    divisions: dict[int, list[Choice]] = field(default_factory=dict)  # by room

    def learn(self, step: Step) -> None:
        """The first step may allocate what later ones do not. From the second one on, the most counts."""
        seen, order = step.without_dropped()
        is_same = self.order == order and [call.session for call in seen] == [call.session for call in self.seen]
        if not is_same or self.steps < 2:
            self.seen, self.order, self.steps = seen, order, self.steps + 1 if is_same else 1
            self.divisions.clear()
            return
        self.steps += 1
        for known, new in zip(self.seen, seen, strict=True):
            known.join(new)


@dataclass
class Open:
    """A call whose backward has not come yet."""

    step: Step
    index: int
    choice: Choice


@dataclass
class Step:
    """One training step of a model in regions."""

    pattern: Pattern
    device: torch.device | None = None
    start_bytes: int = 0
    planned: list[Choice] | None = None  # None: every region keeps as little as it can
    seen: list[Seen] = field(default_factory=list)
    chosen: list[Choice] = field(default_factory=list)
    order: list[tuple[int, bool]] = field(default_factory=list)
    open: dict[int, StorageWeakRef] = field(default_factory=dict)  # handles of calls whose backward has not come yet
    predicted_bytes: int | None = None  # None: nothing is known of such steps yet
    measured_bytes: int = 0
    is_over: bool = False

    @property
    def kept_bytes(self) -> int:
        return sum(self.chosen[index].kept_bytes for index, handle in self.open.items() if not handle.expired())

    def without_dropped(self) -> tuple[list[Seen], list[tuple[int, bool]]]:
        """What was seen and in which order, but for calls whose results were dropped before there was a backward."""
        left = [i for i in range(len(self.seen)) if i not in self.open or not self.open[i].expired()]
        return [self.seen[i] for i in left], [(left.index(i), is_backward) for i, is_backward in self.order if i in left]

    @property
    def is_watched(self) -> bool:
        return self.device is not None and (self.device.type == "cpu" or self.pattern.steps < _torch.Session.measured_steps)


class Divider:
    """One budget for all regions of a model."""

    def __init__(self, most_open: int, budget_bytes: int | None, reserve_bytes: int, planner: str, seconds: float,
                 future_bytes: Callable[[torch.device], int], preparation: Preparation) -> None:
        self.most_open = most_open  # calls whose backward has not come yet, in a step
        self.budget_bytes, self.reserve_bytes = budget_bytes, reserve_bytes
        self.planner, self.seconds, self.preparation = planner, seconds, preparation
        self.future_bytes = future_bytes
        self.patterns: dict[Hashable, Pattern] = {}
        self.step: Step | None = None  # the latest
        self.others_free = False  # Threads that communicate let go of memory after the communication is over.
        self.is_going_on = False  # what calls the regions, so that further calls may come
        self.region = ""  # the name of the one that is called
        self._choices: dict[tuple[StepSession, bool], list[Choice]] = {}
        self._at_work: dict[tuple[StepSession, int], _torch.PlanAtWork] = {}
        self._open: dict[int, Open] = {}

    # -- Decisions.

    def set_budget(self, budget_bytes: int | None) -> None:
        self.budget_bytes = budget_bytes
        for pattern in self.patterns.values():
            pattern.divisions.clear()

    def begin(self, key: Hashable) -> bool:
        """A step whose inputs have this key. Returns whether it is one of the first, in which things are found out."""
        if self.step is not None:
            self._end(self.step)
        self._forget_dropped()
        pattern = self.patterns.setdefault(key, Pattern())
        self.step = Step(pattern)
        if not pattern.seen:
            return True
        is_new = pattern.steps < 2 or not pattern.divisions
        session = pattern.seen[0].session
        self._begin_at(self.step, session)
        if self.budget_bytes is not None:
            self.step.planned = self._division(pattern, self._room(session.device) - self.step.start_bytes)
            events = _events(pattern.seen, pattern.order)
            self.step.predicted_bytes = self.step.start_bytes + highest(events, self.step.planned)
        return is_new

    def _forget_dropped(self) -> None:
        """Calls whose results were dropped have no backward."""
        for key, call in list(self._open.items()):
            if call.step.open[call.index].expired():
                del self._open[key]

    def _division(self, pattern: Pattern, room: int) -> list[Choice]:
        assert self.budget_bytes is not None
        grain = max(1, self.budget_bytes // GRAIN)
        rounded = room // grain * grain
        known = pattern.divisions.get(rounded)
        if known is not None and highest(_events(pattern.seen, pattern.order), known) <= room:
            return known
        made = self._divided(pattern.seen, pattern.order, rounded) or self._divided(pattern.seen, pattern.order, room)
        if made is None:
            raise self._refusal(self.budget_bytes + self._least(pattern.seen, pattern.order) - room)
        pattern.divisions[rounded] = made
        return made

    def _divided(self, seen: list[Seen], order: list[tuple[int, bool]], room: int) -> list[Choice] | None:
        if _is_nested(order, len(seen)):
            return divide(self._calls(seen), room)
        return divide_alike(_events(seen, order), *self._groups(seen), room)

    def _least(self, seen: list[Seen], order: list[tuple[int, bool]]) -> int:
        if _is_nested(order, len(seen)):
            return smallest_room(self._calls(seen))
        return smallest_room_alike(_events(seen, order), *self._groups(seen))

    def _calls(self, seen: list[Seen]) -> list[Call]:
        """If they are nested in one another."""
        gaps = [call.gap_before_forward for call in seen[1:]] + [0]
        return [Call(self.choices(call.session), call.forward, call.forward if call.backward is None else call.backward,
                     max(call.gap_before_backward, gap)) for call, gap in zip(seen, gaps, strict=True)]

    def _groups(self, seen: list[Seen]) -> tuple[list[int], list[list[Choice]]]:
        sessions = list(dict.fromkeys(call.session for call in seen))
        return [sessions.index(call.session) for call in seen], [self.choices(session) for session in sessions]

    def choices(self, session: StepSession) -> list[Choice]:
        key = session, self.budget_bytes is not None
        if key not in self._choices:
            session.measure()
            with self.preparation.phase("planning"):
                self._choices[key] = choices_of(session.graph, session.costs, self.planner, self.seconds, key[1])
        return self._choices[key]

    def _room(self, device: torch.device) -> int:
        assert self.budget_bytes is not None
        return self.budget_bytes - self.reserve_bytes - self.future_bytes(device)

    def _choice(self, step: Step, session: StepSession, total: int) -> Choice:
        choices = self.choices(session)
        if self.budget_bytes is None:
            return choices[0]
        room, index = self._room(session.device), len(step.chosen)
        planned = step.planned
        is_known = planned is not None and index < len(planned) and step.pattern.seen[index].session is session
        if planned is not None and is_known and total + planned[index].forward_bytes <= room:
            return planned[index]
        # The least memory if all regions that are still to come are like this one.
        to_come = max(1, self.most_open - len(step.open))

        def least(choice: Choice) -> tuple[int, int]:
            return to_come * choice.kept_bytes + max(choice.forward_bytes, choice.growth_bytes), choice.time_ns

        fitting = [choice for choice in choices if total + choice.forward_bytes <= room]
        if not fitting:
            gradients = to_come * session.runtime.program.resident_bytes  # at most
            raise self._refusal(self.budget_bytes + total + least(min(choices, key=least))[0] + gradients - room)
        return min(fitting, key=least)

    def _smallest_room(self, step: Step, index: int) -> int:
        """For a step that has come to the backward of a region. Earlier ones will find at most the gradients of the later ones
        beside them."""
        calls = len(step.seen)
        if not _is_nested(step.order, calls):
            return self._least(step.seen, step.order)
        for before, after in zip(reversed(step.seen[:index]), reversed(step.seen[1:index + 1]), strict=True):
            assert after.backward is not None
            before.backward = after.backward + after.session.runtime.program.resident_bytes
        return self._least(step.seen, _nested(calls))

    def _refusal(self, smallest: int, more: str = "") -> InfeasibleBudget:
        assert self.budget_bytes is not None
        return InfeasibleBudget(
            f"the model cannot be trained inside {_core.format_bytes(self.budget_bytes)}: the smallest budget that is expected "
            f"to be enough is {_core.format_bytes(smallest)} ({smallest} bytes). Raise the budget or make the batch "
            f"smaller{more and '. ' + more}", self.budget_bytes, smallest)

    # -- What regions tell.

    def forward(self, session: StepSession, run: Callable[[], torch.Tensor]) -> None:
        """run: returns the handle of the step."""
        step = self.step
        assert step is not None  # a region is called by its model
        if step.device is None:
            self._begin_at(step, session)
        total = self._total(session, min(choice.forward_bytes for choice in self.choices(session)))
        kept = step.kept_bytes
        gap = self._gap(step, total, kept) if step.seen else 0
        choice = self._choice(step, session, total)
        self._use(session, choice)
        self._reset_peak(step)
        handle = run()
        index = len(step.seen)
        step.seen.append(Seen(session, self.region, total - step.start_bytes - kept, gap))
        step.chosen.append(choice)
        step.order.append((index, False))
        step.open[index] = StorageWeakRef(handle.untyped_storage())
        self._open[_key_of(handle)] = Open(step, index, choice)
        self._note_peak(step, session)

    def begin_backward(self, session: StepSession, handle: torch.Tensor) -> Step:
        opened = self._open.pop(_key_of(handle))
        step, seen = opened.step, opened.step.seen[opened.index]
        total = self._total(session, opened.choice.growth_bytes)
        kept = step.kept_bytes
        seen.gap_before_backward = self._gap(step, total, kept)
        seen.backward = total - step.start_bytes - kept
        step.order.append((opened.index, True))
        del step.open[opened.index]
        if self.budget_bytes is not None and total + opened.choice.growth_bytes > (room := self._room(session.device)):
            if step.planned is None:
                smallest = self.budget_bytes + self._smallest_room(step, opened.index) + step.start_bytes - room
                raise self._refusal(smallest, LEFT_BEHIND)
            raise BudgetExceeded(
                f"{_core.format_bytes(total)} are allocated when the backward of {seen.name} begins, more than this step was "
                f"planned for, and it would not stay inside the budget of {_core.format_bytes(self.budget_bytes)}. The next "
                f"plan counts it. {LEFT_BEHIND}")
        self._reset_peak(step)
        return step

    def end_backward(self, step: Step, session: StepSession) -> None:
        self._note_peak(step, session)
        if not step.open and not self.is_going_on:
            self._end(step)

    def pause(self) -> None:
        """No further region is called in this step."""
        self.is_going_on = False
        if self.step is not None and not self.step.open:
            self._end(self.step)

    def _begin_at(self, step: Step, session: StepSession) -> None:
        step.device, step.start_bytes = session.device, session.runtime.total_bytes

    def _end(self, step: Step) -> None:
        """A step whose backward has not come yet has nothing to tell."""
        if not step.is_over and any(is_backward for _, is_backward in step.order):
            step.pattern.learn(step)
            step.is_over = True

    def _use(self, session: StepSession, choice: Choice) -> None:
        key = session, id(choice)
        if key in self._at_work:
            session.runtime.use(self._at_work[key])
        else:
            self._at_work[key] = session.runtime.use(choice.plan.capsule(), choice.planner, "a plan of a region")

    # -- Measuring.

    def _total(self, session: StepSession, needed: int) -> int:
        """Bytes on the device. If others are about to free memory, it waits a little until so many more fit."""
        total: int = session.runtime.total_bytes
        if not self.others_free or self.budget_bytes is None or session.device.type != "cpu":
            return total
        end = time.monotonic() + PATIENCE
        while total + needed > self._room(session.device) and time.monotonic() < end:
            time.sleep(1e-3)
            total = session.runtime.total_bytes
        return total

    def _reset_peak(self, step: Step) -> None:
        if step.is_watched and step.device is not None:
            _torch.reset_peak(step.device)

    def _peak(self, step: Step, total: int) -> int:
        """The most bytes on the device since the last reset; `total` is what is there now."""
        if not step.is_watched or step.device is None:
            return total
        return total - _torch.allocated_bytes(step.device) + _torch.peak_bytes(step.device)

    def _note_peak(self, step: Step, session: StepSession) -> None:
        step.measured_bytes = max(step.measured_bytes, self._peak(step, session.runtime.total_bytes))
        self._reset_peak(step)

    def _gap(self, step: Step, total: int, kept: int) -> int:
        """The most since the call before."""
        peak = self._peak(step, total)
        step.measured_bytes = max(step.measured_bytes, peak)
        return peak - step.start_bytes - kept

    @property
    def plain_peak_bytes(self) -> int:
        """What the peak of the latest step would be if nothing was recomputed in it."""
        step = self.step
        if step is None:
            return 0
        return step.start_bytes + highest(_events(step.seen, step.order), [self.choices(seen.session)[0] for seen in step.seen])


def _events(seen: list[Seen], order: list[tuple[int, bool]]) -> list[Event]:
    def event(index: int, is_backward: bool) -> Event:
        call = seen[index]
        if not is_backward:
            return Event(index, False, call.forward, call.gap_before_forward)
        return Event(index, True, call.forward if call.backward is None else call.backward, call.gap_before_backward)

    return [event(*each) for each in order]


def _nested(calls: int) -> list[tuple[int, bool]]:
    return [(i, False) for i in range(calls)] + [(i, True) for i in reversed(range(calls))]


def _is_nested(order: list[tuple[int, bool]], calls: int) -> bool:
    """Also if it has stopped before its end."""
    return order == _nested(calls)[:len(order)]


def _key_of(handle: torch.Tensor) -> int:
    return int(handle.untyped_storage()._cdata)
