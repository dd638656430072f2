"""The backend for torch.compile, which captures the step and runs it as planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import fx

from ..errors import GraphBreak
from ..trace.fused.lowered import FIRST_FORM, Form
from ..trace.joint_graph import FUSED, JointGraph, Run
from ..trace.objects import Objects
from ..trace.saved_traces import SavedStep, find_or_trace
from .eager_step import EagerStep
from .fused_step import FusedStep
from .session import StepSession
from .settings import Settings, settings_from


def dynamo_backend(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None,
                   **_: Any) -> Callable[..., Any]:
    """torch.compile(model, backend="reprise", options={"budget": "6GiB"}, fullgraph=True)."""
    return compile_graph(gm, example_inputs, settings_from(**(options or {})), lambda session: None)


def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                  on_session: Callable[[StepSession], None]) -> Callable[..., Any]:
    """What torch.compile calls instead of `gm`. `on_session` gets the session of the step, if there is one."""
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        frame = reason.user_stack[-1] if reason.user_stack else None
        where = f" at {frame.filename}:{frame.lineno}" if frame else ""
        raise GraphBreak(
            f"the model cannot be captured as one graph: it breaks{where}: {reason.reason}. A budget needs the "
            "whole step: use fullgraph=True and change that line, or move it out of the model.")

    def runs_of(joint: JointGraph | SavedStep) -> tuple[Run, Run]:
        name = settings.name

        def session_of(form: Form) -> StepSession:
            session = StepSession(partial(joint.capture, name, form=form), settings, joint.device, name, form,
                                  objects=joint.objects, readers=joint.readers)
            on_session(session)
            return session

        step: FusedStep | EagerStep | StepSession
        if joint.engine == FUSED:
            step = FusedStep(session_of, settings, joint.seed_bytes)
        elif joint.objects != Objects() or settings.together is not None or settings.parallel is not None:
            step = session_of(FIRST_FORM)  # whose gradients all processes expect
        else:
            step = EagerStep(session_of, joint.seed_bytes)
        return step.forward, step.backward

    return find_or_trace(gm, example_inputs, runs_of, settings.preparation, settings.engine, settings.name)
