"""What an optimizer keeps for its parameters, and what it will keep after its first step."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .local_tensors import local
from .native import _torch

Part = Callable[[Sequence[int]], list[int]]

_WAYS = ("fused", "capturable", "foreach")  # ways to compute the same result; some need real memory


def without_wrappers(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer itself: accelerate and Lightning hand out others that pass everything on to it, without hooks of
    their own. One that keeps state beside that of the optimizer inside it stays as it is."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer) and (
            inner.state is optimizer.state):
        optimizer = inner
    return optimizer


def unnamed_tensors(model: torch.nn.Module) -> list[Tensor]:
    """What optimizers that nobody named keep for the parameters of a model: Lightning and the Trainer of transformers make
    theirs themselves, and read its state from a checkpoint before the first step."""
    parameters = set(model.parameters())
    optimizers = [found for found in gc.get_objects() if issubclass(type(found), torch.optim.Optimizer)]
    states = [getattr(optimizer, "state", {}) for optimizer in optimizers]
    kept = [state[parameter] for state in states for parameter in parameters & state.keys()]
    return [local(leaf) for leaf in tree_leaves(kept) if isinstance(leaf, Tensor)]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [local(leaf) for leaf in tree_leaves(list(optimizer.state.values())) if isinstance(leaf, Tensor)]


def optimizer_state_bytes(optimizer: torch.optim.Optimizer, device: torch.device, part: Part = list) -> int:
    """Bytes of state that the optimizer will have after its first step, found by one step of an
    optimizer of the same kind over parameters without memory.

    part: gives the shape of what this process will have of a parameter of some shape."""
    groups = []
    counted_there: set[int] = set()  # parameters whose step counter also lies on the device
    for group in optimizer.param_groups:
        ghosts = [_ghost(p, part) for p in group["params"] if p.requires_grad]
        groups.append({**group, "params": ghosts, **{key: False for key in _WAYS if key in group}})
        if any(group.get(key) for key in ("fused", "capturable")):
            counted_there.update(map(id, ghosts))
    try:
        twin = type(optimizer)(groups, **{k: v for k, v in optimizer.defaults.items() if k == "lr"})
        twin.step()
    except Exception as error:
        raise ValueError(
            f"cannot tell how much state {type(optimizer).__name__} will keep ({error}); "
            "give reserve= in bytes instead of optimizer=") from error
    total = 0
    for parameter, state in twin.state.items():
        for name, tensor in state.items():
            if not isinstance(tensor, Tensor):
                continue
            there = tensor.device.type in (device.type, "meta") or (name == "step" and id(parameter) in counted_there)
            total += _torch.granted_bytes(device, tensor.numel() * tensor.element_size()) if there else 0
    return total


def _ghost(parameter: Tensor, part: Part) -> torch.nn.Parameter:
    ghost = torch.nn.Parameter(local(parameter).new_empty(part(local(parameter).shape), device="meta"))
    ghost.grad = torch.empty_like(ghost)
    return ghost
