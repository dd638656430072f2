"""Puts eager's operators back where AOTAutograd traced others.

Dropout on the CPU: eager multiplies by noise that is 0 or 1/(1-p). AOTAutograd traces an operator
with a mask of booleans, which draws the same numbers but takes longer and may round differently.

Batch norm on CUDA: AOTAutograd traces a functional form of PyTorch's own kernel, whereas eager runs
cuDNN's if it can. cuDNN's operator changes the running statistics it is given, which its schema
does not say; the capture takes care of it.

Collectives: each waits for its own end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import fx
from torch._prims_common import suggest_memory_format

from .collectives import leave_out_waits
from .layouts import at_traced_size

aten = torch.ops.aten


def lower(joint: fx.GraphModule, device: torch.device) -> None:
    """Changes the graph in place."""
    leave_out_waits(joint.graph)
    if device.type == "cpu":
        for node in list(joint.graph.find_nodes(op="call_function", target=aten.native_dropout.default)):
            _lower_dropout(joint.graph, node)
    if device.type == "cuda":
        writes = {node.args[1]: node for node in joint.graph.find_nodes(op="call_function", target=aten.copy_.default)}
        for target, arguments in _BATCH_NORMS.items():
            for node in list(joint.graph.find_nodes(op="call_function", target=target)):
                _lower_batch_norm(joint.graph, node, arguments(*node.args), writes)
    joint.graph.lint()


# The arguments of these operators as those of cudnn_batch_norm.
_BATCH_NORMS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    aten._native_batch_norm_legit_functional.default: lambda *args: args,
    aten._native_batch_norm_legit.no_stats: lambda x, w, b, training, momentum, eps: (
        x, w, b, None, None, training, momentum, eps),
    aten._native_batch_norm_legit_no_training.default: lambda x, w, b, mean, var, momentum, eps: (
        x, w, b, mean, var, False, momentum, eps),
}


def _lower_batch_norm(graph: fx.Graph, node: fx.Node, args: tuple[Any, ...], writes: dict[Any, fx.Node]) -> None:
    x, weight, bias, mean, var, training, momentum, eps = args
    parts: dict[Any, fx.Node] = {user.args[1]: user for user in node.users}
    backwards = _backwards_of(parts) if training else []
    if backwards is None or not _is_cudnns(args):
        return
    statistics = [(parts[i], writes.get(parts[i]), buffer) for i, buffer in ((3, mean), (4, var)) if i in parts]
    for part, write, buffer in statistics:  # into the buffers, and nowhere else
        if write is None or write.args[0] is not buffer or not {*part.users} <= {write, *backwards}:
            return
    with graph.inserting_before(node):
        dense = _contiguous(graph, node, x, x)
        new = _like(graph, node, aten.cudnn_batch_norm.default,
                    (dense, weight, bias, mean, var, training, momentum, eps))
        reserve = _like(graph, node, operator.getitem, (new, 3))
    for user in backwards:
        with graph.inserting_before(user):
            gradient = _contiguous(graph, user, cast(fx.Node, user.args[0]), x)
            backward = _like(graph, user, aten.cudnn_batch_norm_backward.default,
                             (dense, gradient, weight, mean, var, parts[1], parts[2], eps, reserve))
        user.replace_all_uses_with(backward)
        graph.erase_node(user)
    for part, _, _ in statistics:
        graph.erase_node(writes[part])
        graph.erase_node(part)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _is_cudnns(args: tuple[Any, ...]) -> bool:
    """Whether eager would use cuDNN's kernel for these operands."""
    x, weight, bias, mean, var, training, _, eps = args
    if weight is None or bias is None or (mean is None) != (var is None):
        return False
    tensors = [at_traced_size(node.meta["val"]) for node in (x, weight, bias, mean or weight, var or weight)]
    backend = torch._C._select_batch_norm_backend(*tensors, training, eps)
    return bool(backend == torch._C._BatchNormBackend.Cudnn)  # type: ignore[attr-defined]


def _backwards_of(parts: dict[int, fx.Node]) -> list[fx.Node] | None:
    """The calls that read the saved statistics; None if something else reads them too."""
    if 1 not in parts or 2 not in parts:
        return []
    users = list(dict.fromkeys([*parts[1].users, *parts[2].users]))
    known = all(user.target is aten.native_batch_norm_backward.default and user.args[7]
                and user.args[5:7] == (parts[1], parts[2]) for user in users)
    return users if known else None


def _contiguous(graph: fx.Graph, node: fx.Node, tensor: fx.Node, like: fx.Node) -> fx.Node:
    """The tensor as eager passes it to cuDNN. If it already has that layout, this is a view and leaves no call."""
    format = suggest_memory_format(like.meta["val"])
    new = _like(graph, node, aten.contiguous.default, (tensor,))
    new.kwargs = {"memory_format": format}
    new.meta["val"] = tensor.meta["val"]
    return new


def _lower_dropout(graph: fx.Graph, node: fx.Node) -> None:
    x, p, train = cast(tuple[fx.Node, float, bool | None], node.args)
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
    """Numbers drawn in the order of x's memory, as eager draws them; the operator itself would draw in
    the order of the dimensions."""
    fake = x.meta["val"]
    order = sorted(range(fake.dim()), key=fake.stride, reverse=True)
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
