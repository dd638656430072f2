"""Objects among the inputs of a step that are not tensors: meshes of distributed tensors, since torch 2.13. They are not values
of the program. Where they are among the outputs or gradients, the caller gets back what it gave."""

from __future__ import annotations

import itertools
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


def inputs_of_gradients(placeholders: Sequence[fx.Node], primals: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
    """For each gradient that a joint graph returns, the input whose it is. A distributed tensor is two inputs, the tensor and its
    mesh, and has two gradients, or one None if it has none."""
    found: list[Any] = []
    for _, parts in itertools.groupby(zip(placeholders, primals, strict=False), lambda each: _tensor_of(each[0])):
        of_one = [primal for _, primal in parts]
        has_none = len(found) < len(gradients) and gradients[len(found)] is None
        found += of_one[:1] if has_none else of_one
    return found


def _tensor_of(node: fx.Node) -> Any:
    """Equal for the inputs that are parts of one tensor."""
    base = getattr(node.meta.get("desc"), "base", None)
    return node if base is None else base


def is_object(value: Any) -> bool:
    return value is not None and not isinstance(value, (torch.Tensor, *NUMBERS))


def _places(results: Sequence[Any], given: dict[fx.Node, int]) -> dict[int, int]:
    for result in results:
        if isinstance(result, fx.Node) and result not in given and is_object(result.meta.get("val")):
            raise Unsupported(f"the model makes an object ({result.name}) that is not a tensor; make it outside of the model")
    return {i: given[result] for i, result in enumerate(results) if isinstance(result, fx.Node) and result in given}
