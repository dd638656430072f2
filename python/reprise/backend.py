"""The backend of torch.compile: catches the joint graph, and runs it as planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from .capture import Capture
from .captured import Captured
from .eager_kernels import kept_whole
from .errors import GraphBreak, Unsupported
from .layouts import Layouts
from .lowering import lower
from .region import Region
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


def trace(gm: fx.GraphModule, inputs: Sequence[Any], partition: Callable[..., Any], forward: Callable[..., Any],
          backward: Callable[..., Any]) -> Callable[..., Any]:
    """Forward and backward in one graph of the operators that eager runs, which `partition` gets."""
    compiler = aot_autograd(fw_compiler=forward, bw_compiler=backward, partition_fn=partition, inference_compiler=_plain,
                            keep_inference_input_mutations=True)
    with kept_whole():
        return compiler(gm, inputs)


def _reads(gm: fx.GraphModule) -> str:
    """Where the user's code reads numbers out of tensors."""
    nodes = gm.graph.find_nodes(op="call_method", target="item")
    return "".join("\n" + node.stack_trace.rstrip() for node in nodes if node.stack_trace)


def _plain(gm: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    """Without gradients there is nothing to plan."""
    return _boxed(lambda args: fx.Interpreter(gm).boxed_run(args))


def _boxed(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Takes its arguments in a list that it empties, so that they can be freed while it runs."""

    def call(args: list[Any]) -> Any:
        return function(args)

    call._boxed_call = True
    return call


class _Step:
    """What AOTAutograd calls, in this order, for one graph."""

    def __init__(self, settings: Settings, on_region: Callable[[Region], None]) -> None:
        self.settings = settings
        self.on_region = on_region
        self.region: Region | None = None

    def partition(self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int,
                  **_: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        primals, tangents = joint_inputs
        device = _device_of(primals)
        lower(joint, device)
        model = self.settings.owner
        name = type(model).__name__ if model is not None else "model"

        def capture(layouts: Layouts) -> Captured:
            return Capture(joint, primals, tangents, num_fwd_outputs, device, name, layouts).run()

        self.region = Region(capture, self.settings, device, name)
        self.on_region(self.region)
        return _split(joint, num_fwd_outputs, len(primals))

    def compile_forward(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.region is None:  # no gradients after all
            return _plain(gm, inputs)
        return _boxed(self.region.forward)

    def compile_backward(self, _gm: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(self.region.backward)


def _device_of(primals: Sequence[Any]) -> torch.device:
    devices = {p.device for p in primals if isinstance(p, torch.Tensor)}
    accelerated = sorted((d for d in devices if d.type != "cpu"), key=str)
    if len(accelerated) > 1:
        raise Unsupported(f"the model lies on several devices ({', '.join(map(str, accelerated))}): a budget is for "
                          "one; compile the part on each device by itself")
    return accelerated[0] if accelerated else torch.device("cpu")


def _split(joint: fx.GraphModule, num_forward: int, num_primals: int) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward for AOTAutograd's books: it looks at inputs and outputs alone. What
    forward saves is one tensor, the handle of the step. It is said to lie in an input's memory,
    so that AOTAutograd does not offer it to backward for reuse."""
    nodes = list(joint.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    results = nodes[-1].args[0]
    tensor = next(n.meta["val"] for n in placeholders if isinstance(n.meta.get("val"), torch.Tensor))
    handle_meta = {"val": tensor.detach()}

    forward = fx.Graph()
    inputs = [_copy_placeholder(forward, n) for n in placeholders[:num_primals]]
    outputs = _opaque_results(forward, inputs, results[:num_forward])
    handle = forward.call_function(_stand_in, tuple(inputs))
    handle.meta.update(handle_meta)
    forward.output((*outputs, handle))

    backward = fx.Graph()
    saved = backward.placeholder("handle")
    saved.meta.update(handle_meta)
    seeds = [_copy_placeholder(backward, n) for n in placeholders[num_primals:]]
    backward.output(tuple(_opaque_results(backward, [saved, *seeds], results[num_forward:])))
    return fx.GraphModule(joint, forward), fx.GraphModule(joint, backward)


def _copy_placeholder(graph: fx.Graph, node: fx.Node) -> fx.Node:
    copy = graph.placeholder(node.name)
    copy.meta.update(node.meta)
    return copy


def _opaque_results(graph: fx.Graph, inputs: Sequence[fx.Node], results: Sequence[Any]) -> list[Any]:
    made = []
    for result in results:
        if not isinstance(result, fx.Node):
            made.append(result)
            continue
        node = graph.call_function(_stand_in, tuple(inputs))
        node.meta.update(result.meta)
        made.append(node)
    return made


def _stand_in(*_: Any) -> None:
    raise AssertionError("the executor runs instead of this graph")
