"""What is allocated on a device, seen from the training loop.

CUDA counts by itself. On the CPU the meter counts from its installation on; what was there
before (parameters, as a rule) is found by walking the model and the optimizer once.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .native import _torch


def prepare(device: torch.device) -> None:
    """Makes the allocator count what is asked for, and no more.

    CUDA's allocator leaves up to 1 MiB of a free block unsplit, unless its segments are
    expandable; what is left over counts as allocated. Settings of the user's own are left alone.
    """
    _torch.install_meter()
    own = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    if device.type != "cuda" or "expandable_segments" in own or "cudaMallocAsync" in own:
        return
    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None)  # the older name warns where both are
    # With the user's own: what is left out may go back to its default.
    (change or torch.cuda.memory._set_allocator_settings)(",".join(filter(None, [own, "expandable_segments:True"])))


class Ledger:
    """All bytes on one device: the caller's, the model's, the optimizer's."""

    def __init__(self, device: torch.device, model: weakref.ReferenceType[torch.nn.Module] | None,
                 optimizer: weakref.ReferenceType[torch.optim.Optimizer] | None) -> None:
        self.device = device
        self.model = model
        self.optimizer = optimizer
        self._base: int | None = None

    def total_bytes(self, inputs: Iterable[Any], program: Any = None) -> int:
        """Allocated now, when the model is called with these inputs, by what `program` keeps, too."""
        counted = _torch.allocated_bytes(self.device)
        if self.device.type != "cpu":
            return counted
        if self._base is None:
            ours = 0 if program is None else program.number_bytes
            self._base = storage_bytes([*self._known(), *inputs], self.device) + ours - counted
        return self._base + counted

    def _known(self) -> Iterator[Any]:
        model = self.model() if self.model is not None else None
        if model is not None:
            yield from model.parameters()
            yield from model.buffers()
        optimizer = self.optimizer() if self.optimizer is not None else None
        if optimizer is not None:
            yield tree_leaves(list(optimizer.state.values()))


def storage_bytes(tensors: Iterable[Any], device: torch.device) -> int:
    """Bytes of the distinct storages of these tensors and of their gradients."""
    sizes: dict[int, int] = {}
    pending = list(tree_leaves(list(tensors)))
    while pending:
        tensor = pending.pop()
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != device.type:
            continue
        storage = tensor.untyped_storage()
        sizes[storage._cdata] = storage.nbytes()
        if tensor.is_leaf and tensor.grad is not None:
            pending.append(tensor.grad)
    return sum(sizes.values())


def optimizer_state_bytes(optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Bytes of state the optimizer will have after its first step, found by a step of an
    optimizer of its kind over parameters without memory."""
    groups = []
    counted_there: set[int] = set()  # of these the number of steps lies on the device, too
    for group in optimizer.param_groups:
        ghosts = [_ghost(p) for p in group["params"] if p.requires_grad]
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
            if not isinstance(tensor, torch.Tensor):
                continue
            there = tensor.device.type in (device.type, "meta") or (name == "step" and id(parameter) in counted_there)
            total += _torch.granted_bytes(device, tensor.numel() * tensor.element_size()) if there else 0
    return total


_WAYS = ("fused", "capturable", "foreach")  # to compute the same; some ask for real memory


def _ghost(parameter: torch.Tensor) -> torch.nn.Parameter:
    ghost = torch.nn.Parameter(torch.empty_like(parameter, device="meta"))
    ghost.grad = torch.empty_like(ghost)
    return ghost
