"""Puts eager's operators back where AOTAutograd traced others.

Dropout on the CPU: eager multiplies by noise that is 0 or 1/(1-p); AOTAutograd traces an operator
with a mask of booleans, which draws the same numbers but takes longer and may round otherwise.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def lower(joint: fx.GraphModule, device: torch.device) -> None:
    """Changes the graph in place."""
    if device.type == "cpu":
        for node in list(joint.graph.find_nodes(op="call_function", target=aten.native_dropout.default)):
            _lower_dropout(joint.graph, node)
    joint.graph.lint()


def _lower_dropout(graph: fx.Graph, node: fx.Node) -> None:
    x, p, train = node.args
    parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    mask = parts.get(1)
    backwards = list(mask.users) if mask is not None else []
    if not train or not 0 < p < 1 or any(
            user.target is not aten.native_dropout_backward.default for user in backwards):
        return
    with graph.inserting_before(node):
        noise = _like(graph, node, aten.div.Tensor, (_bernoulli(graph, node, x, 1 - p), 1 - p))
        result = _like(graph, node, aten.mul.Tensor, (x, noise))
    if 0 in parts:
        result.meta["val"] = parts[0].meta.get("val")
        parts[0].replace_all_uses_with(result)
        graph.erase_node(parts[0])
    for user in backwards:
        with graph.inserting_before(user):
            gradient = _like(graph, user, aten.mul.Tensor, (user.args[0], noise))
        gradient.meta["val"] = user.meta.get("val")
        user.replace_all_uses_with(gradient)
        graph.erase_node(user)
    if mask is not None:
        graph.erase_node(mask)
    graph.erase_node(node)


def _bernoulli(graph: fx.Graph, node: fx.Node, x: fx.Node, keep: float) -> fx.Node:
    """Numbers drawn in the order of x's memory, as eager draws them: the operator itself draws in
    the order of its dimensions."""
    fake = x.meta["val"]
    order = sorted(range(fake.dim()), key=lambda d: fake.stride(d), reverse=True)
    if fake.is_contiguous() or order == list(range(fake.dim())):
        return _like(graph, node, aten.bernoulli.p, (x, keep))
    back = [order.index(d) for d in range(fake.dim())]
    in_order = _like(graph, node, aten.permute.default, (x, order))
    drawn = _like(graph, node, aten.bernoulli.p, (in_order, keep))
    return _like(graph, node, aten.permute.default, (drawn, back))


def _like(graph: fx.Graph, node: fx.Node, target: Any, args: tuple[Any, ...]) -> fx.Node:
    """A call that belongs to the same module and pass."""
    new = graph.call_function(target, args)
    new.meta.update({k: v for k, v in node.meta.items() if k not in ("val", "tensor_meta")})
    return new
