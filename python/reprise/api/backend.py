"""The backend of torch.compile: captures the step, and runs it as planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..captured import Captured
from ..errors import GraphBreak
from ..region import Region
from ..trace.capture import Capture
from ..trace.joint_graph import boxed, device_of, run_plainly, shells, trace
from ..trace.layouts import Layouts
from ..trace.lowering import lower
from .settings import Settings, settings_from


def dynamo_backend(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None,
                   **_: Any) -> Callable[..., Any]:
    """torch.compile(model, backend="reprise", options={"budget": "6GiB"}, fullgraph=True)."""
    return compile_graph(gm, example_inputs, settings_from(**(options or {})), lambda region: None)


def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings,
                  on_region: Callable[[Region], None]) -> Callable[..., Any]:
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        frame = reason.user_stack[-1] if reason.user_stack else None
        where = f" at {frame.filename}:{frame.lineno}" if frame else ""
        raise GraphBreak(
            f"the model cannot be captured as one graph: it breaks{where}: {reason.reason}. A budget needs the "
            "whole step: use fullgraph=True and change that line, or move it out of the model.")
    step = _Step(settings, on_region)
    try:
        return trace(gm, example_inputs, step.partition, step.compile_forward, step.compile_backward)
    except GuardOnDataDependentSymNode as error:
        raise GraphBreak(
            "the model cannot be captured as one graph: its shapes or branches depend on a number read out of a "
            f"tensor (.item(), int(), bool()). Change the line below or move it out of the model:{_reads(gm)}"
        ) from error


def _reads(gm: fx.GraphModule) -> str:
    """Where the user's code reads numbers out of tensors."""
    nodes = gm.graph.find_nodes(op="call_method", target="item")
    return "".join("\n" + node.stack_trace.rstrip() for node in nodes if node.stack_trace)


class _Step:
    """What AOTAutograd calls, in this order, for one graph."""

    def __init__(self, settings: Settings, on_region: Callable[[Region], None]) -> None:
        self.settings = settings
        self.on_region = on_region
        self.region: Region | None = None

    def partition(self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int,
                  **_: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        primals, tangents = joint_inputs
        device = device_of(primals)
        lower(joint, device)
        model = self.settings.owner
        name = type(model).__name__ if model is not None else "model"

        def capture(layouts: Layouts) -> Captured:
            return Capture(joint, primals, tangents, num_fwd_outputs, device, name, layouts).run()

        self.region = Region(capture, self.settings, device, name)
        self.on_region(self.region)
        return shells(joint, num_fwd_outputs, len(primals))

    def compile_forward(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.region is None:  # no gradients after all
            return run_plainly(gm, inputs)
        return boxed(self.region.forward)

    def compile_backward(self, _gm: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return boxed(self.region.backward)
