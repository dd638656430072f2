"""A step of the fused engine in several forms, of which one runs.

What forward saves for backward is decided before kernels are generated. A plan can drop what was saved and run kernels
again; but where a cheap chain of operators is computed again inside a kernel of backward, nothing has to be written and
read. Neither partition is the faster one at all budgets. The second one is lowered when a plan of the first computes much
again.

Kernels also read the gradients of all outputs. If a model returns its logits beside its loss, the gradient of the logits
is never there, and zeros as large as they would have to stand in for it. A step in which that takes much memory is lowered
again without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import InfeasibleBudget, RepriseError, Unsupported
from ..native import _torch
from ..trace.fused.lowered import FAR, FIRST_FORM, NEAR, Form
from .session import StepSession
from .settings import Settings

log = logging.getLogger("reprise")

STEPS_BEFORE = 2  # steps at a budget after which forms are compared: what the caller does is known by then
WORTH_COMPARING = 0.02  # share of recomputation in a step's time
WORTH_LEAVING_OUT = 0.01  # share of absent gradients in a step's peak


class FusedStep:
    """What the compiled model calls."""

    def __init__(self, session_of: Callable[[Form], StepSession], settings: Settings, seed_bytes: Sequence[int]) -> None:
        self._session_of, self._settings, self._seed_bytes = session_of, settings, seed_bytes
        self._form = FIRST_FORM
        self._sessions = {self._form: session_of(self._form)}
        self._missing: frozenset[int] | None = None  # gradients that no backward has had; None: there was no backward yet
        self._budget = settings.options.budget_bytes
        self._steps = 0  # at this budget

    def forward(self, args: list[Any]) -> list[Any]:
        session = self._current()
        try:
            return session.forward(args)
        except InfeasibleBudget as refusal:
            if self._settings.partition is not None or session.plan_is_given:
                raise
            return self._forward_otherwise(args, refusal)

    def backward(self, args: list[Any]) -> list[Any]:
        handle, *seeds = args
        session = next(session for session in self._sessions.values() if session.runtime.owns(handle))
        given = {i for i, seed in enumerate(seeds) if isinstance(seed, torch.Tensor)}
        del handle, seeds
        self._missing = (frozenset(range(len(self._seed_bytes))) if self._missing is None else self._missing) - given
        if unexpected := sorted(session.form.absent & given):
            self._form, self._steps = Form(self._form.partition), 0
            raise RepriseError(
                f"backward has a gradient for output {unexpected[0]} of {session.name}, which no step had before, so its kernels "
                "were generated without it. Run the step again: it is counted from now on")
        return session.backward(args)

    # -- Which form runs.

    def _session(self, form: Form) -> StepSession:
        if form not in self._sessions:
            self._sessions[form] = self._session_of(form)
        return self._sessions[form]

    def _current(self) -> StepSession:
        budget = self._settings.options.budget_bytes
        if budget != self._budget:
            self._budget, self._steps, self._form = budget, 0, Form(NEAR, self._form.absent)
        fixed = self._settings.partition
        if fixed is not None:
            self._form = Form(fixed, self._form.absent)
        if self._steps == STEPS_BEFORE and not self._session(self._form).plan_is_given:
            self._leave_out_absent()
            if fixed is None:
                self._take_faster()
        self._steps += 1
        return self._session(self._form)

    def _leave_out_absent(self) -> None:
        plan = self._session(self._form).runtime.plan
        if plan is None or self._missing is None:
            return
        absent = self._missing - self._form.absent
        if sum(self._seed_bytes[i] for i in absent) > WORTH_LEAVING_OUT * plan.peak_bytes:
            self._try(Form(self._form.partition, self._missing), plan.outside_bytes)

    def _take_faster(self) -> None:
        plan = self._session(self._form).runtime.plan
        if self._budget is None or plan is None or plan.recompute_ns <= WORTH_COMPARING * plan.time_ns:
            return
        before = self._form
        found = self._try(self._other(), plan.outside_bytes)
        if found is not None:
            log.info("%s: a step takes %.2f ms as partition %s and %.2f ms as %s", self._session(before).name,
                     plan.time_ns / 1e6, before.partition, found.time_ns / 1e6, self._form.partition)
            if found.time_ns >= plan.time_ns:
                self._form = before

    def _try(self, form: Form, outside_bytes: int) -> _torch.PlanAtWork | None:
        """Plans the step in another form, for the memory that was in use beside the latest step, and takes that form if it
        has a plan."""
        try:
            session = self._session(form)
            session.measure()
            session.runtime.plan_ahead(outside_bytes)
        except (InfeasibleBudget, Unsupported) as error:
            log.info("%s: the step stays as it is: %s", self._session(self._form).name, error)
            return None
        self._form = form
        return session.runtime.plan

    def _other(self) -> Form:
        return Form(FAR if self._form.partition == NEAR else NEAR, self._form.absent)

    def _forward_otherwise(self, args: list[Any], refusal: InfeasibleBudget) -> list[Any]:
        """The other partition, where no plan of the one in use fits."""
        try:
            outputs = self._session(self._other()).forward(args)
        except Unsupported:
            raise refusal from None
        except InfeasibleBudget as error:
            raise min(refusal, error, key=lambda e: e.smallest_budget_bytes) from None
        self._form, self._steps = self._other(), STEPS_BEFORE + 1
        return outputs
