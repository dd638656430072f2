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
from typing import Any

import torch

from .. import _core
from ..division import Call, Choice, choices_of, divide, smallest_room
from ..errors import BudgetExceeded, InfeasibleBudget
from ..native import _torch
from ..progress import Preparation
from .session import StepSession

log = logging.getLogger("reprise")

MEASURED_STEPS = 4  # On CUDA the allocator's peak is the user's, too: it is looked at in the first few steps alone.
PATIENCE = 0.5  # seconds for others to free memory
GRAIN = 100  # Rooms are rounded down to this part of the budget, so that few divisions are made.


@dataclass
class Seen:
    """At a call of a region: bytes above those at the begin of the step, beside what regions keep."""

    session: StepSession
    name: str
    forward: int  # when forward begins
    backward: int | None = None  # when backward begins
    after: int = 0  # the most between calls, while this region and the earlier ones keep their part

    def call(self, choices: list[Choice]) -> Call:
        return Call(choices, self.forward, self.forward if self.backward is None else self.backward, self.after)


@dataclass
class Pattern:
    """Steps that call the same regions with inputs of the same sizes."""

    seen: list[Seen] = field(default_factory=list)
    steps: int = 0
    divisions: dict[int, list[Choice]] = field(default_factory=dict)  # by room

    def learn(self, seen: list[Seen]) -> None:
        """The first step may allocate what later ones do not. From the second one on, the most counts."""
        is_same = [call.session for call in seen] == [call.session for call in self.seen]
        if not is_same or self.steps < 2:
            self.seen, self.steps = seen, self.steps + 1 if is_same else 1
            self.divisions.clear()
            return
        self.steps += 1
        for known, new in zip(self.seen, seen, strict=True):
            known.forward, known.after = max(known.forward, new.forward), max(known.after, new.after)
            if new.backward is not None:
                known.backward = new.backward if known.backward is None else max(known.backward, new.backward)


@dataclass
class Open:
    """A call whose backward has not come yet."""

    step: Step
    index: int
    choice: Choice
    kept_before: int


@dataclass
class Step:
    pattern: Pattern
    device: torch.device | None = None
    start_bytes: int = 0
    planned: list[Choice] | None = None  # None: every region keeps as little as it can
    seen: list[Seen] = field(default_factory=list)
    chosen: list[Choice] = field(default_factory=list)
    predicted_bytes: int | None = None  # None: nothing is known of such steps yet
    measured_bytes: int = 0
    is_over: bool = False

    @property
    def kept_bytes(self) -> int:
        return sum(choice.kept_bytes for choice in self.chosen)

    @property
    def is_watched(self) -> bool:
        return self.device is not None and (self.device.type == "cpu" or self.pattern.steps < MEASURED_STEPS)


class Divider:
    """One budget for all regions of a model."""

    def __init__(self, num_regions: int, budget_bytes: int | None, reserve_bytes: int, planner: str, seconds: float,
                 future_bytes: Callable[[torch.device], int], preparation: Preparation) -> None:
        self.num_regions, self.budget_bytes, self.reserve_bytes = num_regions, budget_bytes, reserve_bytes
        self.planner, self.seconds, self.preparation = planner, seconds, preparation
        self.future_bytes = future_bytes
        self.patterns: dict[Hashable, Pattern] = {}
        self.step: Step | None = None  # the latest
        self.others_free = False  # Threads that communicate let go of memory after the communication is over.
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
        pattern = self.patterns.setdefault(key, Pattern())
        self.step = Step(pattern)
        if not pattern.seen:
            return True
        is_new = pattern.steps < 2 or not pattern.divisions
        session = pattern.seen[0].session
        self._begin_at(self.step, session)
        if self.budget_bytes is not None:
            self.step.planned = self._division(pattern, self._room(session.device) - self.step.start_bytes)
            self.step.predicted_bytes = self.step.start_bytes + _most(self._calls(pattern.seen), self.step.planned)
        return is_new

    def _division(self, pattern: Pattern, room: int) -> list[Choice]:
        assert self.budget_bytes is not None
        grain = max(1, self.budget_bytes // GRAIN)
        rounded = room // grain * grain
        calls = self._calls(pattern.seen)
        known = pattern.divisions.get(rounded)
        if known is not None and _most(calls, known) <= room:
            return known
        made = divide(calls, rounded) or divide(calls, room)
        if made is None:
            raise self._refusal(self.budget_bytes + smallest_room(calls) - room)
        pattern.divisions[rounded] = made
        return made

    def _calls(self, seen: list[Seen]) -> list[Call]:
        return [call.call(self.choices(call.session)) for call in seen]

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
        to_come = max(1, self.num_regions - index)

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
        for before, after in zip(reversed(step.seen[:index]), reversed(step.seen[1:index + 1]), strict=True):
            assert after.backward is not None
            before.backward = after.backward + after.session.runtime.program.resident_bytes
        return smallest_room(self._calls(step.seen))

    def _refusal(self, smallest: int) -> InfeasibleBudget:
        assert self.budget_bytes is not None
        return InfeasibleBudget(
            f"the model cannot be trained inside {_core.format_bytes(self.budget_bytes)}: the smallest budget that is expected "
            f"to be enough is {_core.format_bytes(smallest)} ({smallest} bytes). Raise the budget or make the batch "
            "smaller", self.budget_bytes, smallest)

    # -- What regions tell.

    def forward(self, session: StepSession, run: Callable[[], torch.Tensor]) -> None:
        """run: returns the handle of the step."""
        step = self.step
        assert step is not None  # a region is called by its model
        if step.device is None:
            self._begin_at(step, session)
        total = self._total(session, min(choice.forward_bytes for choice in self.choices(session)))
        kept = step.kept_bytes
        if step.seen:
            self._note_gap(step, step.seen[-1], total, kept)
        choice = self._choice(step, session, total)
        opened = Open(step, len(step.chosen), choice, kept)
        self._use(session, choice)
        before = Seen(session, self.region, total - step.start_bytes - kept)
        self._reset_peak(step)
        handle = run()
        step.seen.append(before)
        step.chosen.append(choice)
        self._open[_key_of(handle)] = opened
        self._note_peak(step, session)

    def backward(self, session: StepSession, handle: torch.Tensor, run: Callable[[], list[Any]]) -> list[Any]:
        opened = self._open.pop(_key_of(handle))
        step, seen = opened.step, opened.step.seen[opened.index]
        total = self._total(session, opened.choice.growth_bytes)
        kept = opened.kept_before + opened.choice.kept_bytes
        self._note_gap(step, seen, total, kept)
        seen.backward = total - step.start_bytes - kept
        if self.budget_bytes is not None and total + opened.choice.growth_bytes > (room := self._room(session.device)):
            if step.planned is None:
                raise self._refusal(self.budget_bytes + self._smallest_room(step, opened.index) + step.start_bytes - room)
            raise BudgetExceeded(
                f"{_core.format_bytes(total)} are allocated when the backward of {seen.name} begins, more than this step was "
                f"planned for, and it would not stay inside the budget of {_core.format_bytes(self.budget_bytes)}. The next "
                "plan counts it: run the step again.")
        self._reset_peak(step)
        gradients = run()
        self._note_peak(step, session)
        if opened.index == 0:
            self._end(step)
        return gradients

    def _begin_at(self, step: Step, session: StepSession) -> None:
        step.device, step.start_bytes = session.device, session.runtime.total_bytes

    def _end(self, step: Step) -> None:
        if not step.is_over and step.seen:
            step.pattern.learn(step.seen)
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
        """Of everything on the device since the last reset; `total` is what is there now."""
        if not step.is_watched or step.device is None:
            return total
        return total - _torch.allocated_bytes(step.device) + _torch.peak_bytes(step.device)

    def _note_peak(self, step: Step, session: StepSession) -> None:
        step.measured_bytes = max(step.measured_bytes, self._peak(step, session.runtime.total_bytes))
        self._reset_peak(step)

    def _note_gap(self, step: Step, last: Seen, total: int, kept: int) -> None:
        peak = self._peak(step, total)
        step.measured_bytes = max(step.measured_bytes, peak)
        last.after = max(last.after, peak - step.start_bytes - kept)

    @property
    def plain_peak_bytes(self) -> int:
        """Of the latest step, if nothing was recomputed in it."""
        step = self.step
        if step is None:
            return 0
        calls = self._calls(step.seen)
        return step.start_bytes + _most(calls, [call.choices[0] for call in calls])


def _most(calls: list[Call], chosen: list[Choice]) -> int:
    kept, most = 0, 0
    for call, choice in zip(calls, chosen, strict=True):
        most = max(most, call.most(choice, kept))
        kept += choice.kept_bytes
    return most


def _key_of(handle: torch.Tensor) -> int:
    return int(handle.untyped_storage()._cdata)
