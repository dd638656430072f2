"""Captures a training step without its device: no memory is allocated, no kernel runs, and the model stays as it is.

A copy of the model has fake tensors in place of the model's own, on any device that torch knows by
name. The inputs are fake too, with any batch size.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from .joint_graph import EAGER
from .layouts import Layouts
from .step_capture import CapturedStep, capture_step

Inputs = tuple[Sequence[Any], Mapping[str, Any]]


@dataclass
class DryStep:
    """A captured step and the bytes on the device."""

    step: CapturedStep
    there_bytes: int  # bytes of the model's tensors and of the inputs

    @property
    def device(self) -> torch.device:
        return self.step.joint.device

    @property
    def outside_bytes(self) -> int:
        """The bytes of the model and its inputs that are not in the step's graph."""
        return self.there_bytes - self.step.captured.program.resident_bytes


def capture(model: nn.Module, inputs: Inputs, device: torch.device, layouts: Layouts,
            resize: Callable[[Tensor], Sequence[int]] | None = None, engine: str = EAGER) -> DryStep:
    """Captures the step of `model` on `device`, wherever the model lies.

    resize: gives the shape that an input tensor shall have, if it is not the tensor's own.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}  # by storage, so that tensors that share memory still share it

    def fake(tensor: Tensor) -> Tensor:
        with mode, torch.no_grad():
            storage = tensor.untyped_storage()
            if storage._cdata not in fakes:
                count = storage.nbytes() // tensor.element_size()
                fakes[storage._cdata] = torch.empty(count, dtype=tensor.dtype, device=device)
            base = fakes[storage._cdata]
            return base.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def fake_input(tensor: Tensor) -> Tensor:
        shape = tensor.shape if resize is None else resize(tensor)
        if tuple(shape) == tuple(tensor.shape):
            return fake(tensor).requires_grad_(tensor.requires_grad)
        with mode:
            made = torch.empty(shape, dtype=tensor.dtype, device=device)
            if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) \
                    and not tensor.is_contiguous():
                made = made.to(memory_format=torch.channels_last)
            return made.requires_grad_(tensor.requires_grad)

    twin = _twin(model, fake)
    args, kwargs = tree_map_only(Tensor, fake_input, (tuple(inputs[0]), dict(inputs[1])))
    step = capture_step(twin._call_impl, args, kwargs, type(model).__name__, layouts, engine)
    there = {t.untyped_storage()._cdata: t.untyped_storage().nbytes()
             for t in tree_leaves([list(twin.parameters()), list(twin.buffers()), args, kwargs])
             if isinstance(t, Tensor) and t.device.type == device.type}
    return DryStep(step, sum(there.values()))


def _twin(model: nn.Module, fake: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the model whose tensors have no memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(fake(parameter.data), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = fake(buffer)
    return copy.deepcopy(model, memo)  # for a compiled model, a plain one
