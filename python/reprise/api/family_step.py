"""A step that was traced for inputs of any size: a session for each size that it is called with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .. import switches
from ..errors import InfeasibleBudget
from ..native import _torch
from ..trace.any_size import AnySize
from .model_plan import ModelPlan
from .session import StepSession, backward


class FamilyStep:
    """What the compiled model calls."""

    def __init__(self, traced: AnySize, family: _torch.ProgramFamily, shared: _torch.SizeFamily,
                 session_of: Callable[[_torch.Program], StepSession], plan: ModelPlan, on_begin: Callable[[], None]) -> None:
        """on_begin: is called when a step begins that is known to be a size of this one."""
        self._traced, self._family, self._shared, self._session_of = traced, family, shared, session_of
        self._plan, self._on_begin = plan, on_begin
        self._members: OrderedDict[tuple[int, ...], StepSession] = OrderedDict()

    def forward(self, args: list[Any]) -> list[Any]:
        symbols = tuple(self._traced.sizes.of(args))
        member = self._members.get(symbols) or self._session_of(self._family.at(list(symbols)))
        try:
            self._measure(member, symbols, args)
            self._on_begin()
            return member.forward(args)
        except InfeasibleBudget as error:
            self._on_begin()
            raise self._with_sizes(error, symbols, member.runtime.room_bytes or 0) from None

    def backward(self, args: list[Any]) -> list[Any]:
        return backward(args, self._plan.settings)

    def _measure(self, member: StepSession, symbols: tuple[int, ...], args: list[Any]) -> None:
        """A size for which there is no hope is not kept."""
        if symbols not in self._members:
            member.measure_for(args)
            self._members[symbols] = member
            self._plan.add(member)
            if len(self._members) > (switches.most_sizes() or _torch.SizeFamily.most_members):
                self._plan.drop(self._members.popitem(last=False)[1])
        self._members.move_to_end(symbols)

    def _with_sizes(self, error: InfeasibleBudget, symbols: tuple[int, ...], room: int) -> InfeasibleBudget:
        """The refusal, with the largest sizes that would fit."""
        words = [self._traced.words(i) for i in range(len(symbols))]
        fitting = self._shared.sizes_that_fit(self._family, symbols, room, self._traced.holds_at, words)
        return InfeasibleBudget(f"{error}{fitting}", error.budget_bytes, error.smallest_budget_bytes)
