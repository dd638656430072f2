"""Objects among the inputs of a step that are no tensors: meshes of distributed tensors, since torch 2.13. They are not values
of the program. Where they are among the outputs or gradients, the caller gets back what it gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..errors import Unsupported

NUMBERS = (int, float, bool, complex, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Objects:
    """By position among outputs or gradients, which input comes back there."""

    outputs: dict[int, int] = field(default_factory=dict)
    gradients: dict[int, int] = field(default_factory=dict)


def objects_of(joint: fx.GraphModule, primals: Sequence[Any], num_forward_outputs: int) -> Objects:
    nodes = list(joint.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"][: len(primals)]
    given = {node: i for i, (node, primal) in enumerate(zip(inputs, primals, strict=True)) if is_object(primal)}
    results = nodes[-1].args[0]
    return Objects(_places(results[:num_forward_outputs], given), _places(results[num_forward_outputs:], given))


def is_object(value: Any) -> bool:
    return value is not None and not isinstance(value, (torch.Tensor, *NUMBERS))


def _places(results: Sequence[Any], given: dict[fx.Node, int]) -> dict[int, int]:
    for result in results:
        if isinstance(result, fx.Node) and result not in given and is_object(result.meta.get("val")):
            raise Unsupported(f"the model makes an object ({result.name}) that is not a tensor; make it outside of the model")
    return {i: given[result] for i, result in enumerate(results) if isinstance(result, fx.Node) and result in given}
