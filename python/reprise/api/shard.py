"""reprise.shard: every process holds a part of each parameter, and steps gather the whole ones where they read them.

Parameters become DTensors. While the model runs, reading one through its module gives the whole parameter; at any other time
it gives the DTensor (trace/sharding.py). A gather is an op of the step like any other, so that a plan decides whether a whole
parameter is kept or gathered again, together with what it does about activations (trace/gathers.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor
from torch.nn.parameter import UninitializedParameter

from ..errors import Unsupported
from ..local_tensors import is_distributed
from ..trace.gathers import Processes
from ..trace.sharding import SHARD, Sharding, check_placement, divide
from .compiled_model import refuse_wrappers


def shard(model: nn.Module, mesh: DeviceMesh, *, param_dtype: torch.dtype | None = None,
          reduce_dtype: torch.dtype | None = None, placement: str = SHARD) -> nn.Module:
    """Leaves a part of each parameter in each process of `mesh`, and returns the model. Make the optimizer afterwards, and pass
    the model to reprise.compile, whose plans then decide which whole parameters are kept and which are gathered again.

    The model is changed in place: same `state_dict` keys, tied parameters and names of classes. Its parameters become DTensors,
    divided along the first dimension that the number of processes divides; where there is none, each process holds all of it.
    Every process takes its part of its own values, as with fully_shard: begin from the same ones. Gradients are averaged.

    mesh: of one dimension, such as `mesh["dp"]`, or of two: parameters are divided over the second, and all parts are there as
        often as the first is long (hybrid sharding).
    param_dtype: what whole parameters, and inputs of the model, are cast to. None: what they are.
    reduce_dtype: what gradients are averaged in. None: what backward computes them in.
    placement: "shard", or "replicate": each process holds all of the parameters, as in DistributedDataParallel.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"reprise.shard takes a torch.nn.Module, not {type(model).__name__}")
    check_placement(placement)
    _check_mesh(mesh)
    check_model(model)
    _check_device(model, mesh)
    last = mesh.ndim - 1
    replicas = _along(mesh, 0) if last == 1 and mesh.size(0) > 1 else None
    sharding = Sharding(_along(mesh, last), replicas, param_dtype, reduce_dtype, placement)
    divide(model, sharding, lambda parameter: _in_parts(parameter, mesh, sharding.dim(parameter.shape)))
    return model


def _along(mesh: DeviceMesh, dim: int) -> Processes:
    return mesh.get_group(dim).group_name, mesh.size(dim)


def _in_parts(parameter: nn.Parameter, mesh: DeviceMesh, dim: int | None) -> nn.Parameter:
    everywhere: list[Placement] = [Replicate()] * (mesh.ndim - 1)
    if dim is not None:
        made = distribute_tensor(parameter.detach(), mesh, [*everywhere, Shard(dim)], src_data_rank=None)
    else:
        made = distribute_tensor(parameter.detach().clone(), mesh, [*everywhere, Replicate()])
    part = nn.Parameter(made, requires_grad=parameter.requires_grad)
    part.__dict__.update(parameter.__dict__)
    return part


def _check_mesh(mesh: DeviceMesh) -> None:
    if mesh.ndim > 2:
        raise Unsupported("reprise.shard takes a mesh of one dimension, or of two to shard over the second and replicate over "
                          f"the first, and this one has {mesh.ndim}: give it one or two of them, such as mesh[\"dp\"]")
    if mesh.get_coordinate() is None:
        raise ValueError(f"rank {dist.get_rank()} is not in the mesh {mesh}: call reprise.shard in the processes of the mesh")


def _check_device(model: nn.Module, mesh: DeviceMesh) -> None:
    for name, parameter in model.named_parameters():
        if parameter.device.type not in ("meta", mesh.device_type):
            raise Unsupported(f"the mesh is of {mesh.device_type}, and '{name}' lies on {parameter.device}: move the model to "
                              f"{mesh.device_type} first")


def check_model(model: nn.Module) -> None:
    """Raises if the model cannot be sharded over any processes."""
    refuse_wrappers(model)
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise Unsupported("reprise.shard averages gradients itself: give it the model without DistributedDataParallel")
    if "plan" in model.__dict__:
        raise Unsupported("the model was compiled already: call reprise.shard before reprise.compile")
    named = [*model.named_parameters(), *model.named_buffers()]
    if distributed := next((name for name, tensor in named if is_distributed(tensor)), None):
        raise Unsupported(f"'{distributed}' is distributed already (DTensor), by reprise.shard, fully_shard or "
                          "parallelize_module: give reprise.shard a model whose parameters are whole")
    devices = sorted({str(tensor.device) for _, tensor in named})
    if len(devices) > 1:
        raise Unsupported(f"the model lies on several devices ({', '.join(devices)}): move it to one")
    for name, parameter in model.named_parameters():
        for reason, way_out in _wrong_with(parameter):
            raise Unsupported(f"parameter '{name}' {reason}: {way_out}")
    for name, module in model.named_modules():
        for attribute in _held_beside(module):
            raise Unsupported(f"module '{name}' ({type(module).__name__}) also holds its parameters in '{attribute}', where "
                              "nobody notices when one is read: it cannot be sharded")


def _wrong_with(parameter: nn.Parameter) -> Iterator[tuple[str, str]]:
    if isinstance(parameter, UninitializedParameter):
        yield "has no shape yet", "call the model once before it is sharded"
        return
    if parameter.grad is not None:
        yield "has a gradient", "call reprise.shard before the first backward, or set the gradients to None"
    if not parameter.is_contiguous():
        yield "does not lie in one piece", "make it contiguous before it is sharded"
    if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
        yield "has hooks", "add them after reprise.shard"


def _held_beside(module: nn.Module) -> Iterator[str]:
    """Attributes with lists of parameters, such as those of nn.LSTM."""
    for name, held in module.__dict__.items():
        if isinstance(held, (list, tuple)) and any(isinstance(each, nn.Parameter) for each in held):
            yield name
