"""A step of the fused engine in two partitions, of which the faster one at the budget runs.

What forward saves for backward is decided before kernels are generated. A plan can drop what was saved and run kernels
again; but where a cheap chain of operators is computed again inside a kernel of backward, nothing has to be written and
read. Neither partition is the faster one at all budgets. The second one is lowered when a plan of the first computes much
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..errors import InfeasibleBudget, Unsupported
from ..trace.fused.lowered import FAR, NEAR
from .session import StepSession
from .settings import Settings

log = logging.getLogger("reprise")

STEPS_BEFORE = 2  # steps at a budget after which partitions are compared: what the caller allocates is known by then
WORTH_COMPARING = 0.02  # share of recomputation in a step's time


class PartitionedStep:
    """What the compiled model calls."""

    def __init__(self, session_of: Callable[[str], StepSession], settings: Settings) -> None:
        self._session_of, self._settings = session_of, settings
        self._sessions = {NEAR: session_of(NEAR)}
        self._chosen = NEAR
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
        return next(session for session in self._sessions.values() if session.runtime.owns(args[0])).backward(args)

    def _session(self, partition: str) -> StepSession:
        if partition not in self._sessions:
            self._sessions[partition] = self._session_of(partition)
        return self._sessions[partition]

    def _current(self) -> StepSession:
        if self._settings.partition is not None:
            return self._session(self._settings.partition)
        budget = self._settings.options.budget_bytes
        if budget != self._budget:
            self._budget, self._steps, self._chosen = budget, 0, NEAR
        if self._steps == STEPS_BEFORE and not self._sessions[self._chosen].plan_is_given:
            self._chosen = self._faster()
        self._steps += 1
        return self._session(self._chosen)

    def _faster(self) -> str:
        """The faster partition, for the memory that was in use beside the latest step."""
        plan = self._sessions[self._chosen].runtime.plan
        if self._budget is None or plan is None or plan.recompute_ns <= WORTH_COMPARING * plan.time_ns:
            return self._chosen
        other = FAR if self._chosen == NEAR else NEAR
        try:
            session = self._session(other)
            session.measure()
            session.runtime.plan_ahead(plan.outside_bytes)
        except (InfeasibleBudget, Unsupported) as error:
            log.info("%s: no other partition: %s", self._sessions[self._chosen].name, error)
            return self._chosen
        found = session.runtime.plan
        assert found is not None  # it was planned just now
        log.info("%s: a step takes %.2f ms as partition %s and %.2f ms as %s", session.name, plan.time_ns / 1e6, self._chosen,
                 found.time_ns / 1e6, other)
        return other if found.time_ns < plan.time_ns else self._chosen

    def _forward_otherwise(self, args: list[Any], refusal: InfeasibleBudget) -> list[Any]:
        """The other partition, where no plan of the chosen one fits."""
        other = FAR if self._chosen == NEAR else NEAR
        try:
            outputs = self._session(other).forward(args)
        except Unsupported:
            raise refusal from None
        except InfeasibleBudget as error:
            raise min(refusal, error, key=lambda e: e.smallest_budget_bytes) from None
        self._chosen, self._steps = other, STEPS_BEFORE + 1
        return outputs
