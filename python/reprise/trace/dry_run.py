"""A training step captured where the device is not: no memory, no kernel, nothing of the model changed.

The model's tensors are put into a copy of it as fake ones, on any device that torch knows by name,
and the inputs are fake too, in any batch size.
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

from .layouts import Layouts
from .step_capture import CapturedStep, capture_step

Inputs = tuple[Sequence[Any], Mapping[str, Any]]


@dataclass
class DryStep:
    """A captured step and what lies on the device."""

    step: CapturedStep
    there_bytes: int  # of the model's tensors and inputs

    @property
    def outside_bytes(self) -> int:
        """Of these, what is in no graph."""
        return self.there_bytes - self.step.captured.program.resident_bytes


def capture(model: nn.Module, inputs: Inputs, device: torch.device, layouts: Layouts,
            resize: Callable[[Tensor], Sequence[int]] | None = None) -> DryStep:
    """Captures the step of `model` on `device`, wherever the model lies.

    resize: the shape an input tensor shall have, if not its own.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes: dict[int, Tensor] = {}  # by storage: tensors that share memory go on sharing it

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
    step = capture_step(twin._call_impl, args, kwargs, type(model).__name__, layouts)
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
    return copy.deepcopy(model, memo)  # of a compiled model a plain one
