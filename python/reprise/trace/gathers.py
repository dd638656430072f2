"""Parameters of which every process holds a part (reprise.shard): the whole parameter where a step reads it, the mean of its
gradients afterwards.

A read is one node of the graph that torch.compile traces. AOTAutograd takes it apart: a gather of the parts, which a plan may run
again, and in backward a reduction, which runs once. Or it is left unreduced (unreduced.py).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, fx

from ..local_tensors import is_distributed
from .collectives import waited_for
from .unreduced import Accumulation, Unreduced


class Sharded:
    """A base of the classes of modules that read whole parameters."""

    _reprise_accumulation: Accumulation | None = None  # of the module that was given to reprise.shard
    _reprise_unreduced: dict[str, Unreduced] | None = None  # by the module's names of its own parameters


def is_sharded(model: torch.nn.Module) -> bool:
    return any(isinstance(module, Sharded) for module in model.modules())


def accumulations(model: torch.nn.Module) -> list[Accumulation]:
    """Those of all models in this one that were given to reprise.shard."""
    found = [module._reprise_accumulation for module in model.modules() if isinstance(module, Sharded)]
    return [accumulation for accumulation in found if accumulation is not None]


Processes = tuple[str, int]  # the name of a group, and how many they are


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def whole(parameter: Any, dim: int | None, shards: Processes, replicas: Processes | None, param_dtype: torch.dtype | None,
          reduce_dtype: torch.dtype | None, taker: Tensor | None = None, waiting: Tensor | None = None) -> Tensor:
    """The whole of a parameter that is divided along one dimension over the processes of `shards`, or (None) of one that is there
    as a whole in each of them. A DTensor knows its dimension itself; `dim` is for a parameter that is this process's part alone.

    replicas: the processes that have the same part. taker: gets the whole gradient, unreduced, instead of the parameter. waiting:
    is added to the gradient before that is reduced.
    """
    if is_distributed(parameter):
        placement = parameter.placements[-1]
        parameter, dim = parameter.to_local(), placement.dim if placement.is_shard() else None
    if taker is not None:
        parameter = parameter.detach()
    made: Tensor = _Whole.apply(  # type: ignore[no-untyped-call]
        parameter, taker, waiting, dim, shards, replicas, param_dtype, reduce_dtype)
    return made


def merge_reads(module: fx.GraphModule) -> None:
    """A parameter that is read twice is gathered once, and autograd adds its gradients before they are reduced."""
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            _merge_reads(part.graph)


def _merge_reads(graph: fx.Graph) -> None:
    first: dict[Any, fx.Node] = {}
    has_gradients = True
    for node in list(graph.nodes):
        if node.target is torch._C._set_grad_enabled:
            has_gradients = cast(bool, node.args[0])
        elif node.target is whole:
            known = first.setdefault((node.args, has_gradients), node)
            if known is not node:
                node.replace_all_uses_with(known)
                graph.erase_node(node)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, taker: Tensor | None, waiting: Tensor | None, dim: int | None, shards: Processes,
                replicas: Processes | None, param_dtype: torch.dtype | None, reduce_dtype: torch.dtype | None) -> Tensor:
        ctx.about = part.dtype, taker is None, dim, shards, replicas, reduce_dtype
        ctx.save_for_backward(waiting)
        is_cast = param_dtype not in (None, part.dtype) and part.is_floating_point()
        wanted = part.to(param_dtype) if is_cast else part.view_as(part)
        return wanted if dim is None else _gathered(wanted, dim, shards)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        dtype, reduces, dim, shards, replicas, reduce_dtype = ctx.about
        (waiting,) = ctx.saved_tensors
        if reduce_dtype is not None:
            gradient = gradient.to(reduce_dtype)
        if waiting is not None:
            gradient = waiting + gradient
        if not reduces:
            return None, gradient.contiguous(), *[None] * 6
        mean = _mean(gradient, shards) if dim is None else _mean_part(gradient, dim, shards)
        if replicas is not None:
            mean = _mean(mean, replicas)
        return mean.to(dtype), *[None] * 7


def _gathered(part: Tensor, dim: int, shards: Processes) -> Tensor:
    group, size = shards
    pieces = waited_for("all_gather_into_tensor", part, size, group)
    return pieces if dim == 0 else torch.cat(pieces.chunk(size), dim)


def _mean_part(gradient: Tensor, dim: int, shards: Processes) -> Tensor:
    group, size = shards
    pieces = gradient if dim == 0 else torch.cat(gradient.chunk(size, dim))
    return waited_for("reduce_scatter_tensor", pieces.contiguous(), _reduction(size), size, group)


def _mean(gradient: Tensor, processes: Processes) -> Tensor:
    group, size = processes
    return waited_for("all_reduce", gradient.contiguous(), _reduction(size), group)


def _reduction(size: int) -> str:
    return "avg" if size > 1 else "sum"  # NCCL's average over one process may be wrong.
