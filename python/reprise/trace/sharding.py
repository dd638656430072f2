"""How reprise.shard divides a model's parameters over processes, and how the model reads whole ones.

What divides them says what a part is: a DTensor where the processes are (api/shard.py), or the part of one process alone where a
step is captured without the others (trace/dry_run.py). Both capture the same step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from .eager_way import goes_as_eager
from .gathers import Processes, Sharded, whole
from .unreduced import Accumulation, Unreduced, gradient_dtype

SHARD, REPLICATE = "shard", "replicate"


@dataclass(frozen=True)
class Sharding:
    """Over how many processes parameters are divided, and how whole ones are made."""

    shards: Processes
    replicas: Processes | None = None  # that have the same parts
    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    placement: str = SHARD

    @property
    def size(self) -> int:
        return self.shards[1]

    def dim(self, shape: Sequence[int]) -> int | None:
        """Along which a parameter is divided: the first that the number of processes divides. None: each process holds all."""
        if self.placement != SHARD:
            return None
        return next((dim for dim, length in enumerate(shape) if length > 0 and length % self.size == 0), None)

    def part(self, shape: Sequence[int]) -> list[int]:
        """The shape of what one process holds of a parameter."""
        divided = self.dim(shape)
        return [length // self.size if dim == divided else length for dim, length in enumerate(shape)]


def check_placement(placement: str) -> None:
    if placement not in (SHARD, REPLICATE):
        hint = ". To shard within groups of processes and replicate across them, give reprise.shard a mesh of two dimensions"
        raise ValueError(f"placement={placement!r}: choose {SHARD!r} or {REPLICATE!r}{hint if placement == 'hybrid' else ''}")


def divide(model: nn.Module, sharding: Sharding, part_of: Callable[[nn.Parameter], nn.Parameter]) -> None:
    """Puts parts in the place of parameters. While the model runs, reading one through its module gives the whole parameter; at
    any other time it gives the part."""
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    dims: dict[nn.Module, dict[str, int | None]] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places.setdefault(parameter, []).append((module, name))
                dims.setdefault(module, {})[name] = sharding.dim(parameter.shape)
    while places:  # what is whole goes one by one
        parameter, holders = places.popitem()
        part = part_of(parameter)
        for module, name in holders:
            module._parameters[name] = part
    classes: dict[Any, type[nn.Module]] = {}
    for module in model.modules():
        kind = type(module), tuple(dims.get(module, {}).items()), module is model
        if module in dims or module is model:
            module.__class__ = classes.get(kind) or classes.setdefault(kind, _class_of(*kind, sharding))
    cast(Sharded, model)._reprise_accumulation = Accumulation()


class _Running(threading.local):
    """How many calls of sharded models this thread is in."""

    def __init__(self) -> None:
        self.calls = 0


_running = _Running()


def _class_of(plain: type[nn.Module], dims: tuple[tuple[str, int | None], ...], is_root: bool,
              sharding: Sharding) -> type[nn.Module]:
    """A class that looks like the plain one, whose parameters are whole while the model runs."""
    made: Any = type(plain.__name__, (plain, Sharded), {
        **{name: property(_reading(name, dim, sharding)) for name, dim in dims},
        "__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__})
    if is_root:
        made._call_impl = _calling(made, sharding.param_dtype)
        made.set_requires_gradient_sync = _synchronizing(sharding)
    return cast(type[nn.Module], made)


def _reading(name: str, dim: int | None, sharding: Sharding) -> Any:
    how = sharding.shards, sharding.replicas, sharding.param_dtype, sharding.reduce_dtype

    def read(module: Any) -> Any:
        held = module._parameters[name]
        if held is None or not (goes_as_eager() or _running.calls > 0):
            return held
        if module._reprise_unreduced is None or not held.requires_grad:
            return whole(held, dim, *how)
        about = module._reprise_unreduced[name]
        return whole(held, dim, *how, about.taker, about.waiting)

    return read


def _calling(made: Any, param_dtype: torch.dtype | None) -> Any:
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        if param_dtype is not None:
            args, kwargs = tree_map_only(Tensor, lambda given: given.to(param_dtype) if given.is_floating_point() else given,
                                         (args, kwargs))
        plain = super(made, model)._call_impl
        if goes_as_eager():
            return plain(*args, **kwargs)
        if torch.is_grad_enabled():
            model._reprise_accumulation.refuse_without_plan()
        _running.calls += 1
        try:
            return plain(*args, **kwargs)
        finally:
            _running.calls -= 1

    return call


def _synchronizing(sharding: Sharding) -> Any:
    def set_requires_gradient_sync(model: Any, requires_gradient_sync: bool) -> None:
        """Whether gradients of the micro-batches to come are reduced, as of FSDPModule: if not, whole gradients wait in each
        process until those of a later micro-batch are reduced together with them."""
        accumulation = model._reprise_accumulation
        if not requires_gradient_sync and not accumulation.gradients:
            _prepare(model, accumulation, sharding)
        accumulation.syncs = requires_gradient_sync

    return set_requires_gradient_sync


def _prepare(model: nn.Module, accumulation: Accumulation, sharding: Sharding) -> None:
    made = {parameter: Unreduced(parameter, gradient_dtype(parameter, sharding.param_dtype, sharding.reduce_dtype))
            for parameter in model.parameters() if parameter.is_floating_point() or parameter.is_complex()}
    accumulation.gradients = {name: made[parameter] for name, parameter in model.named_parameters() if parameter in made}
    for module in model.modules():
        if isinstance(module, Sharded):
            module._reprise_unreduced = {name: made[parameter] for name, parameter in module._parameters.items()
                                         if parameter in made}
