"""AOTAutograd's joint graph of a step: forward and backward together, of the operators that eager runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from ..errors import Unsupported
from .eager_kernels import kept_whole


def trace(gm: fx.GraphModule, inputs: Sequence[Any], partition: Callable[..., Any], forward: Callable[..., Any],
          backward: Callable[..., Any]) -> Callable[..., Any]:
    """Forward and backward in one graph of the operators that eager runs, which `partition` gets."""
    compiler = aot_autograd(fw_compiler=forward, bw_compiler=backward, partition_fn=partition, inference_compiler=run_plainly,
                            keep_inference_input_mutations=True)
    with kept_whole():
        return compiler(gm, inputs)


def run_plainly(gm: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    """Without gradients there is nothing to plan."""
    return boxed(lambda args: fx.Interpreter(gm).boxed_run(args))


def boxed(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Takes its arguments in a list that it empties, so that they can be freed while it runs."""

    def call(args: list[Any]) -> Any:
        return function(args)

    call._boxed_call = True
    return call


def device_of(primals: Sequence[Any]) -> torch.device:
    devices = {p.device for p in primals if isinstance(p, torch.Tensor)}
    accelerated = sorted((d for d in devices if d.type != "cpu"), key=str)
    if len(accelerated) > 1:
        raise Unsupported(f"the model lies on several devices ({', '.join(map(str, accelerated))}): a budget is for "
                          "one; compile the part on each device by itself")
    return accelerated[0] if accelerated else torch.device("cpu")


def shells(joint: fx.GraphModule, num_forward: int, num_primals: int) -> tuple[fx.GraphModule, fx.GraphModule]:
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
