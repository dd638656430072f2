"""A training step captured without running it: no memory, no kernel, nothing of the model changed.

The model's tensors are put into a copy of it as fake ones, on any device that torch knows by name,
and the inputs are fake too, in any batch size. torch.compile traces that copy; where a compiled
model would run its first step, this ends.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ..captured import Captured
from ..errors import RepriseError
from .capture import Capture
from .dynamo import own_errors, own_frame
from .eager_way import Trace
from .joint_graph import boxed, device_of, shells, trace
from .layouts import Layouts
from .lowering import lower
from .roofline import Rates

Inputs = tuple[Sequence[Any], Mapping[str, Any]]


@dataclass
class DryStep:
    """A captured step and what lies on the device beside it."""

    captured: Captured
    outside_bytes: int  # of the model's tensors and inputs, what is in no graph
    capture: Callable[[Layouts], Captured]  # what was traced once more, with other layouts

    def again(self, layouts: Layouts) -> DryStep:
        """Without tracing, which is what takes time."""
        captured = self.capture(layouts)
        there = self.outside_bytes + self.captured.resident_bytes
        return DryStep(captured, there - captured.resident_bytes, self.capture)


def capture(model: nn.Module, inputs: Inputs, device: torch.device, layouts: Layouts | None = None,
            rates: Rates | None = None, resize: Callable[[Tensor], Sequence[int]] | None = None) -> DryStep:
    """Captures the step of `model` on `device`, wherever the model lies.

    resize: the shape an input tensor shall have, if not its own.
    rates: of the roofline; by default the device's.
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
    step = _Step(type(model).__name__, layouts or {}, rates)
    call = torch.compile(own_frame(twin._call_impl), backend=step.backend, fullgraph=True, dynamic=False)
    with own_errors(), mode, torch.enable_grad():
        try:
            Trace()(call, *args, **kwargs)
        except _Captured:
            pass
    if step.captured is None:
        raise RepriseError(f"{type(model).__name__} has no gradients to train with: no parameter requires one")
    there = {t.untyped_storage()._cdata: t.untyped_storage().nbytes()
             for t in tree_leaves([list(twin.parameters()), list(twin.buffers()), args, kwargs])
             if isinstance(t, Tensor) and t.device.type == device.type}
    return DryStep(step.captured, sum(there.values()) - step.captured.resident_bytes, step.capture)


def _twin(model: nn.Module, fake: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the model whose tensors have no memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(fake(parameter.data), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = fake(buffer)
    return copy.deepcopy(model, memo)  # of a compiled model a plain one


class _Captured(Exception):
    """Thrown where the first step would run."""


class _Step:
    """What AOTAutograd calls."""

    def __init__(self, name: str, layouts: Layouts, rates: Rates | None) -> None:
        self.name, self.layouts, self.rates = name, layouts, rates
        self.captured: Captured | None = None
        self.capture: Callable[[Layouts], Captured] | None = None

    def backend(self, gm: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        return trace(gm, inputs, self.partition, self.stop, self.stop)

    def partition(self, joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int,
                  **_: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        primals, tangents = joint_inputs
        device = device_of(primals)
        lower(joint, device)

        def capture(layouts: Layouts) -> Captured:
            return Capture(joint, primals, tangents, num_fwd_outputs, device, self.name, layouts, self.rates).run()

        self.capture, self.captured = capture, capture(self.layouts)
        return shells(joint, num_fwd_outputs, len(primals))

    def stop(self, *_: Any) -> Callable[..., Any]:
        def end(_: list[Any]) -> Any:
            raise _Captured

        return boxed(end)
