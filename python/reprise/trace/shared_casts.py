"""Parameters that autocast casts for several readers.

Plain PyTorch remembers the cast of a parameter within autocast, so its readers share one: their gradients are added in the lower
precision, and the sum is cast back. AOTAutograd switches the memory off while it traces, and casts for every reader. Here the
casts become one again, as in `relu(x @ w) @ w`:

    traced:  grad = float(g2) + float(g1)      plain:  grad = float(g2 + g1)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .autocast import is_within_autocast

aten = torch.ops.aten


MARK = "region of autocast"  # in what AOTAutograd hands on from a node to what it traces of it


def mark_regions(module: fx.GraphModule) -> None:
    """Marks nodes within which casts of parameters are remembered, with the number of the region in which they are. All of it
    is forgotten at the end of the outermost autocast. A second call changes nothing: it may come in another state."""
    if MARK in module.meta:
        return
    module.meta[MARK] = True
    region = 0
    is_outside = [not is_within_autocast()]
    remembers = [torch.is_autocast_cache_enabled()]
    for node in module.graph.nodes:
        if node.target is torch.amp.autocast_mode._enter_autocast:
            region += is_outside[-1]
            is_outside.append(False)
            remembers.append(remembers[-1] if len(node.args) < 4 or node.args[3] is None else bool(node.args[3]))
        elif node.target is torch.amp.autocast_mode._exit_autocast:
            is_outside.pop()
            remembers.pop()
        elif remembers[-1] and not is_outside[-1]:
            node.meta["custom"] = {**node.meta.get("custom", {}), MARK: region}


def share_casts(joint: fx.GraphModule, num_forward_outputs: int, traced: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """traced, inputs: what the joint graph was made of, with marks."""
    nodes = list(joint.graph.nodes)
    primals = [node for node in nodes if node.op == "placeholder"][:len(inputs)]
    gradients = nodes[-1].args[0][num_forward_outputs:]
    if len(gradients) != len(inputs):
        return
    place = {node: i for i, node in enumerate(nodes)}
    given = traced.graph.find_nodes(op="placeholder")
    for primal, traced_gradient, tensor, source in zip(primals, gradients, inputs, given, strict=True):
        if not isinstance(traced_gradient, fx.Node) or not _is_remembered(tensor) or _casts_itself(source):
            continue
        gradient = traced_gradient
        alike = defaultdict(list)
        for cast in sorted((user for user in primal.users if _is_cast_by_autocast(user)), key=place.__getitem__):
            alike[cast.meta["custom"][MARK], cast.kwargs["dtype"]].append(cast)
        for casts in alike.values():
            if len(casts) > 1:
                gradient = _with_one_sum(joint.graph, gradient, {cast.meta["seq_nr"] for cast in casts})
                for cast in casts[1:]:
                    cast.replace_all_uses_with(casts[0])
                    joint.graph.erase_node(cast)


def _is_remembered(tensor: Any) -> bool:
    return (isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32 and tensor.is_leaf and tensor.requires_grad and
            not tensor._is_view())


def _casts_itself(source: fx.Node) -> bool:
    """Whether the model also casts it by a call of its own, which is never shared."""
    return any(user.op == "call_method" and user.target in ("to", "type", "type_as", "bfloat16", "half") for user in source.users)


def _is_cast_by_autocast(node: fx.Node) -> bool:
    return (node.target is aten._to_copy.default and list(node.kwargs) == ["dtype"] and "seq_nr" in node.meta and
            MARK in node.meta.get("custom", {}) and node.kwargs["dtype"] in (torch.bfloat16, torch.float16))


def _with_one_sum(graph: fx.Graph, gradient: fx.Node, casts: set[int]) -> fx.Node:
    """The gradient, in which terms that come from these casts are added before they are cast back. A call of backward has the
    number of the call of forward that it belongs to."""
    sums: list[fx.Node] = []
    terms: list[fx.Node] = []
    first = gradient
    while first.target is aten.add.Tensor and not first.kwargs and isinstance(first.args[1], fx.Node):
        if sums and len(first.users) > 1:
            break
        sums.append(first)
        terms.append(first.args[1])
        first = first.args[0]  # type: ignore[assignment]
    terms = [first, *reversed(terms)]  # in the order in which they are added
    back = [term for term in terms if term.target is aten._to_copy.default and term.meta.get("seq_nr") in casts]
    if len(back) < 2:
        return gradient
    made: fx.Node | None = None
    for term in terms:
        if term in back[:-1]:
            continue
        addend = _sum_of(graph, back) if term is back[-1] else term
        if made is None:
            made = addend
        else:
            with graph.inserting_after(addend):
                made = _like(graph.call_function(aten.add.Tensor, (made, addend)), gradient)
    assert made is not None
    gradient.replace_all_uses_with(made)
    for node in (*sums, *back):
        graph.erase_node(node)
    return made


def _sum_of(graph: fx.Graph, back: Sequence[fx.Node]) -> fx.Node:
    """What is cast back by each of these calls, added and then cast."""
    lower = back[0].args[0]
    total: Any = lower
    for term in back[1:]:
        with graph.inserting_after(term):
            total = _like(graph.call_function(aten.add.Tensor, (total, term.args[0])), lower)
    with graph.inserting_after(total):
        return _like(graph.call_function(aten._to_copy.default, (total,), back[-1].kwargs), back[-1])


def _like(node: fx.Node, known: Any) -> fx.Node:
    node.meta.update(known.meta)
    return node
