"""Collectives in a traced graph: calls in which processes exchange tensors.

PyTorch traces a call that starts and another one that waits for it, and may put others between them. A program is told of one
call, made where the first one stands; its builder makes the wait (runtime/program/passes/split_collectives.h), and plans decide
what runs between the two.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_map_only

from ..errors import Unsupported

NAMESPACE = "_c10d_functional"


def leave_out_waits(graph: fx.Graph) -> None:
    """Takes the waiting out of the graph: the builder knows that every collective of a step has to be waited for."""
    for node in list(graph.nodes):
        if not _is_wait(node):
            if is_collective(node.target):
                _check_group(node)
            continue
        awaited = cast(fx.Node, node.args[0])
        source = cast(fx.Node, awaited.args[0]) if awaited.target is operator.getitem else awaited
        if not is_collective(source.target):
            raise Unsupported(f"the model waits for a collective that began before it was called ({node.name}): wait for the "
                              "tensor before the model gets it")
        node.replace_all_uses_with(awaited)
        graph.erase_node(node)


def waited_for(name: str, *args: Any) -> torch.Tensor:
    """What a collective returns, when it is there."""
    made: torch.Tensor = getattr(torch.ops, NAMESPACE).wait_tensor(getattr(getattr(torch.ops, NAMESPACE), name)(*args))
    return made


def is_collective(target: Any) -> bool:
    return isinstance(target, OpOverload) and target.namespace == NAMESPACE


def results_in_one_piece(results: Any) -> Any:
    """What a collective returns lies in one piece, however its operands lie; fake kernels do not know that."""
    return tree_map_only(torch.Tensor, lambda result: result.new_empty(result.shape), results)


def _is_wait(node: fx.Node) -> bool:
    return is_collective(node.target) and cast(OpOverload, node.target)._opname == "wait_tensor"


def _check_group(node: fx.Node) -> None:
    names = [argument.name for argument in cast(OpOverload, node.target)._schema.arguments]
    place = names.index("group_name") if "group_name" in names else len(names)
    group = node.args[place] if place < len(node.args) else node.kwargs.get("group_name")
    if not isinstance(group, str):
        raise Unsupported(f"{node.target} does not name its group of processes: leave "
                          "torch.distributed.config.compile_on_one_rank off")
