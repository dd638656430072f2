"""reprise.shard: every process holds a part of each parameter, and steps gather the whole ones where they read them.

Parameters become DTensors. While the model runs, reading one through its module gives the whole parameter; at any other time
it gives the DTensor. A gather is an op of the step like any other, so that a plan decides whether a whole parameter is kept or
gathered again, together with what it does about activations (trace/gathers.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_map_only

from ..errors import Unsupported
from ..local_tensors import is_distributed
from ..trace.eager_way import goes_as_eager
from ..trace.gathers import Sharded, whole
from .compiled_model import refuse_wrappers

SHARD, REPLICATE = "shard", "replicate"


@dataclass(frozen=True)
class _Way:
    """How whole parameters are made."""

    group: str
    size: int
    param_dtype: torch.dtype | None
    reduce_dtype: torch.dtype | None


class _Running(threading.local):
    """How many calls of sharded models this thread is in."""

    def __init__(self) -> None:
        self.calls = 0


_running = _Running()


def shard(model: nn.Module, mesh: DeviceMesh, *, param_dtype: torch.dtype | None = None,
          reduce_dtype: torch.dtype | None = None, placement: str = SHARD) -> nn.Module:
    """Leaves a part of each parameter in each process of `mesh`, and returns the model. Make the optimizer afterwards, and pass
    the model to reprise.compile, whose plans then decide which whole parameters are kept and which are gathered again.

    The model is changed in place: same `state_dict` keys, tied parameters and names of classes. Its parameters become DTensors,
    divided along the first dimension that the number of processes divides; where there is none, each process holds all of it.
    Every process takes its part of its own values, as with fully_shard: begin from the same ones. Gradients are averaged.

    mesh: of one dimension, such as `mesh["dp"]`.
    param_dtype: what whole parameters, and inputs of the model, are cast to. None: what they are.
    reduce_dtype: what gradients are averaged in. None: what backward computes them in.
    placement: "shard", or "replicate": each process holds all of the parameters, as in DistributedDataParallel.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"reprise.shard takes a torch.nn.Module, not {type(model).__name__}")
    _check_mesh(mesh, placement)
    _check_model(model, mesh)
    way = _Way(mesh.get_group().group_name, mesh.size(), param_dtype, reduce_dtype)
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(parameter, []).append((module, name))
    while places:  # what is whole goes one by one
        parameter, holders = places.popitem()
        part = _in_parts(parameter, mesh, placement)
        for module, name in holders:
            module._parameters[name] = part
    classes: dict[Any, type[nn.Module]] = {}
    for module in model.modules():
        names = tuple(name for name, parameter in module._parameters.items() if parameter is not None)
        kind = type(module), names, module is model
        if names or module is model:
            module.__class__ = classes.get(kind) or classes.setdefault(kind, _class_of(*kind, way))
    return model


def _in_parts(parameter: nn.Parameter, mesh: DeviceMesh, placement: str) -> nn.Parameter:
    size = mesh.size()
    dims = [dim for dim, length in enumerate(parameter.shape) if length > 0 and length % size == 0]
    if placement == SHARD and dims:
        made = distribute_tensor(parameter.detach(), mesh, [Shard(dims[0])], src_data_rank=None)
    else:
        made = distribute_tensor(parameter.detach().clone(), mesh, [Replicate()])
    part = nn.Parameter(made, requires_grad=parameter.requires_grad)
    part.__dict__.update(parameter.__dict__)
    return part


def _class_of(plain: type[nn.Module], names: tuple[str, ...], is_root: bool, way: _Way) -> type[nn.Module]:
    """A class that looks like the plain one, whose parameters are whole while the model runs."""
    made: Any = type(plain.__name__, (plain, Sharded), {
        **{name: property(_reading(name, way)) for name in names},
        "__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__})
    if is_root:
        made._call_impl = _calling(made, way.param_dtype)
    return cast(type[nn.Module], made)


def _reading(name: str, way: _Way) -> Any:
    group, size, param_dtype, reduce_dtype = way.group, way.size, way.param_dtype, way.reduce_dtype

    def read(module: nn.Module) -> Any:
        held = module._parameters[name]
        if held is not None and (goes_as_eager() or _running.calls > 0):
            return whole(held, group, size, param_dtype, reduce_dtype)
        return held

    return read


def _calling(made: Any, param_dtype: torch.dtype | None) -> Any:
    def call(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if param_dtype is not None:
            args, kwargs = tree_map_only(Tensor, lambda given: given.to(param_dtype) if given.is_floating_point() else given,
                                         (args, kwargs))
        plain = super(made, model)._call_impl
        if goes_as_eager():
            return plain(*args, **kwargs)
        _running.calls += 1
        try:
            return plain(*args, **kwargs)
        finally:
            _running.calls -= 1

    return call


def _check_mesh(mesh: DeviceMesh, placement: str) -> None:
    if placement not in (SHARD, REPLICATE):
        hint = ": sharding within and replicating across groups of processes is not supported" if placement == "hybrid" else ""
        raise ValueError(f"placement={placement!r}{hint}: choose {SHARD!r} or {REPLICATE!r}")
    if mesh.ndim != 1:
        raise Unsupported(f"reprise.shard takes a mesh of one dimension, and this one has {mesh.ndim}: give it one of them, "
                          'such as mesh["dp"]')
    if mesh.get_coordinate() is None:
        raise ValueError(f"rank {dist.get_rank()} is not in the mesh {mesh}: call reprise.shard in the processes of the mesh")


def _check_model(model: nn.Module, mesh: DeviceMesh) -> None:
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
        if parameter.device.type not in ("meta", mesh.device_type):
            raise Unsupported(f"the mesh is of {mesh.device_type}, and '{name}' lies on {parameter.device}: move the model to "
                              f"{mesh.device_type} first")
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
