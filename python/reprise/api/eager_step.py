"""A step of eager's operators in a form for each set of outputs that get a gradient.

AOTAutograd traces backward with gradients of all outputs. A sum leaves out one that the caller does not have, as eager does.
Where anything else would read it, the step goes on as another program, without what eager does not run: zeros in its place
would give other bits, and gradients to parameters that have none in eager. After two backward passes with the same gradients
steps are planned for those. If others come then, and what they need is gone, that step cannot go on, and the next ones are
planned for all gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import InfeasibleBudget, RepriseError
from ..trace.fused.lowered import FIRST_FORM, Form
from .session import StepSession

LOSS_BYTES = 8  # a single number
STEPS_ALIKE = 2  # backward passes with the same gradients after which steps are planned for them


class EagerStep:
    """What the compiled model calls."""

    def __init__(self, session_of: Callable[[Form], StepSession], seed_bytes: Sequence[int]) -> None:
        """seed_bytes: of the gradient of each output."""
        self._session_of = session_of
        self._whole = session_of(FIRST_FORM)
        self._sessions = {FIRST_FORM: self._whole}
        self._latest, self._alike = FIRST_FORM, 0  # the form that the latest backward wanted, and how many did in a row
        self._changes = False  # A gradient came that was not planned for, so that all are.
        losses = {i for i, size in enumerate(seed_bytes) if 0 < size <= LOSS_BYTES}
        # A model that returns its loss is expected to be trained with that loss alone.
        self._expected = set(range(len(seed_bytes))) - losses if losses else set[int]()

    def forward(self, args: list[Any]) -> list[Any]:
        expected = self._form_without(self._expected)
        if self._whole.runtime.last_call == 0 and expected != FIRST_FORM:
            self._whole.measure()
            self._session(expected).measure()  # now, when nothing of the step is there yet
        is_settled = self._alike >= STEPS_ALIKE and not self._changes and not self._whole.plan_is_given
        form = self._latest if is_settled else FIRST_FORM
        try:
            return self._session(form).forward(args)
        except InfeasibleBudget:
            if form != FIRST_FORM or expected == FIRST_FORM or self._changes:
                raise
            return self._session(expected).forward(args)  # which takes less

    def backward(self, args: list[Any]) -> list[Any]:
        handle, *seeds = args
        session = next(session for session in self._sessions.values() if session.runtime.owns(handle))
        wanted = self._form_without({i for i, seed in enumerate(seeds) if not isinstance(seed, torch.Tensor)})
        self._alike = self._alike + 1 if wanted == self._latest else 1
        self._latest = wanted
        unexpected = sorted(session.form.absent - wanted.absent)
        self._changes |= bool(unexpected)
        if wanted != session.form and not self._go_on(session, self._session(wanted), handle) and unexpected:
            raise RepriseError(
                f"backward has a gradient for output {unexpected[0]} of {session.name}, which the steps before did not have, so "
                "this one was planned without it. Run the step again: all gradients are planned for from now on")
        del handle, seeds
        return session.backward(args)

    @staticmethod
    def _go_on(session: StepSession, other: StepSession, handle: torch.Tensor) -> bool:
        other.measure()
        return session.runtime.go_on_as(other.runtime, handle)

    def _form_without(self, absent: set[int]) -> Form:
        is_whole = absent <= self._whole.runtime.optional_seeds
        return FIRST_FORM if is_whole else Form(absent=frozenset(absent))

    def _session(self, form: Form) -> StepSession:
        if form not in self._sessions:
            self._sessions[form] = self._session_of(form)
        return self._sessions[form]
