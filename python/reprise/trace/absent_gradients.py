"""A joint graph without the gradients of some outputs, as eager's backward is where the caller has none.

AOTAutograd traces backward with a gradient for every output. Autograd does not run what depends only on gradients that are
not there, and leaves them out of sums. Zeros in their place would give other bits: a sum with zeros may lie in another way in
memory than the other summand, and parameters behind such outputs get zeros where eager leaves None.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from .capture import Operands

aten = torch.ops.aten


def without_gradients(joint: fx.GraphModule, operands: Operands, first_tangent: int,
                      absent: Collection[int]) -> tuple[fx.GraphModule, Operands]:
    """A copy of the graph, and the operands of those of its nodes that are as they were traced.

    first_tangent: the number of inputs before the gradients of outputs. absent: by output."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(joint.graph, copies))
    tangents = graph.find_nodes(op="placeholder")[first_tangent:]
    zero = {tangents[i] for i in absent}
    given = set(tangents) - zero
    gone = []  # what eager does not run
    for node in [each for each in graph.nodes if each.op == "call_function"]:
        sources = set(node.all_input_nodes)
        if not sources & zero:
            if sources & given:
                given.add(node)
        elif not sources & given:
            zero.add(node)
            gone.append(node)
        elif (other := _other_summand(node, zero)) is not None:
            node.replace_all_uses_with(other)
            gone.append(node)
        else:
            for source in sources & zero:
                node.replace_input_with(source, _zeros(graph, node, source))
            given.add(node)
    output = graph.output_node()
    output.args = (fx.node.map_aggregate(output.args[0], lambda each: None if each in zero else each),)
    for node in reversed(gone):
        graph.erase_node(node)
    known = {copies[node]: (target, [copies[source] for source in sources])
             for node, (target, sources) in operands.items() if copies.keys() >= {node, *sources}}
    return fx.GraphModule(joint, graph), known


def _other_summand(node: fx.Node, zero: Collection[fx.Node]) -> fx.Node | None:
    """What a sum of two gradients is where one of them is not there."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return None
    a, b = node.args
    other = b if a in zero else a
    if not isinstance(other, fx.Node) or other in zero:
        return None
    there, made = other.meta["val"], node.meta["val"]
    return other if (there.shape, there.dtype) == (made.shape, made.dtype) else None


def _zeros(graph: fx.Graph, reader: fx.Node, source: fx.Node) -> fx.Node:
    """What autograd gives an operator that wants several gradients and does not get them all."""
    like = source.meta["val"]
    with graph.inserting_before(reader):
        made = graph.call_function(aten.zeros.default, (list(like.shape),), {"dtype": like.dtype, "device": like.device})
    made.meta = {key: value for key, value in reader.meta.items() if key != "val"}
    return made
