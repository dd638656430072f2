"""Captures a training step without its device: no memory is allocated, no kernel runs, and the model stays as it is.

A copy of the model has fake tensors in place of the model's own, on any device that torch knows by
name. The inputs are fake too, with any sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from .any_size import NoFamily
from .captured import Captured
from .joint_graph import EAGER
from .layouts import Layouts
from .sharding import Sharding, divide
from .step_capture import TracedStep, capture_step, trace_for_any_size

Inputs = tuple[Sequence[Any], Mapping[str, Any]]


@dataclass
class DryStep:
    """A captured step and the bytes on the device."""

    step: TracedStep
    there_bytes: int  # bytes of the model's tensors and of the inputs

    @property
    def device(self) -> torch.device:
        return self.step.joint.device

    @property
    def outside_bytes(self) -> int:
        """The bytes of the model, its inputs and the step's own tensors that are not in the step's graph."""
        program = self.step.captured.program
        return self.there_bytes + program.own_bytes - program.resident_bytes


Resize = Callable[[Tensor], Sequence[int]]


def capture(model: nn.Module, inputs: Inputs, device: torch.device, layouts: Layouts,
            resize: Resize | None = None, engine: str = EAGER, sharding: Sharding | None = None) -> DryStep:
    """Captures the step of `model` on `device`, wherever the model lies.

    resize: gives the shape that an input tensor shall have, if it is not the tensor's own.
    sharding: captures the step of one of the processes over which the parameters are divided. There is no need for the others:
        operators that communicate know from their arguments how large their results are.
    """
    fakes = _Fakes(model, device, sharding)
    args, kwargs = fakes.inputs(inputs, resize)
    step = capture_step(fakes.model._call_impl, args, kwargs, type(model).__name__, layouts, engine)
    return DryStep(step, fakes.bytes_with(args, kwargs))


class DryFamily:
    """A step that was traced for inputs of any size."""

    def __init__(self, model: nn.Module, inputs: Inputs, like: DryStep, layouts: Layouts,
                 varies: Callable[[Tensor], Collection[int]], sharding: Sharding | None = None) -> None:
        """like: the step at the size that the inputs have, captured with these layouts.
        varies: gives the dimensions of an input tensor that may have other sizes."""
        self._inputs, self._like, self._fakes = inputs, like, _Fakes(model, like.device, sharding)
        args, kwargs = self._fakes.inputs(inputs, None)
        tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
        dims = [(number, dim) for number, tensor in enumerate(tensors) for dim in varies(tensor)]
        self._traced = trace_for_any_size(self._fakes.model._call_impl, args, kwargs, type(model).__name__, dims)
        symbols = self._traced.symbols_at(args, kwargs)
        assert symbols is not None  # it was traced there
        self._family = self._traced.family(layouts, symbols)
        difference = self._family.at(symbols).difference(like.step.captured.program)
        if difference is not None:
            raise NoFamily(f"traced for any size it is another step: {difference}")

    def holds_at(self, resize: Resize) -> bool:
        """Whether it is the same step with inputs of other shapes."""
        return self._traced.symbols_at(*self._fakes.inputs(self._inputs, resize)) is not None

    def at(self, resize: Resize) -> DryStep | None:
        """The step with inputs of other shapes; None if it is another step there."""
        args, kwargs = self._fakes.inputs(self._inputs, resize)
        symbols = self._traced.symbols_at(args, kwargs)
        if symbols is None:
            return None
        there = self._like.step
        step = TracedStep(there.name, there.joint, there.results, Captured(self._family.at(symbols), {}))
        return DryStep(step, self._fakes.bytes_with(args, kwargs))


class _Fakes:
    """A copy of a model whose tensors have no memory, and inputs of the same kind."""

    def __init__(self, model: nn.Module, device: torch.device, sharding: Sharding | None) -> None:
        self._mode, self._device = FakeTensorMode(allow_non_fake_inputs=True), device
        self._made: dict[int, Tensor] = {}  # by storage, so that tensors that share memory still share it
        self.model = _twin(model, self._fake)
        if sharding is not None:
            divide(self.model, sharding, lambda parameter: self._part(parameter, sharding))

    def _part(self, parameter: nn.Parameter, sharding: Sharding) -> nn.Parameter:
        with self._mode:
            part = torch.empty(sharding.part(parameter.shape), dtype=parameter.dtype, device=self._device)
        return nn.Parameter(part, requires_grad=parameter.requires_grad)

    def inputs(self, inputs: Inputs, resize: Resize | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def fake(tensor: Tensor) -> Tensor:
            shape = tensor.shape if resize is None else resize(tensor)
            if tuple(shape) == tuple(tensor.shape):
                return self._fake(tensor).requires_grad_(tensor.requires_grad)
            with self._mode:
                made = torch.empty(shape, dtype=tensor.dtype, device=self._device)
                if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) \
                        and not tensor.is_contiguous():
                    made = made.to(memory_format=torch.channels_last)
                return made.requires_grad_(tensor.requires_grad)

        args, kwargs = tree_map_only(Tensor, fake, (tuple(inputs[0]), dict(inputs[1])))
        return args, kwargs

    def bytes_with(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """The bytes that the model and these inputs have on the device."""
        return sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes()
                    for t in tree_leaves([list(self.model.parameters()), list(self.model.buffers()), args, kwargs])
                    if isinstance(t, Tensor) and t.device.type == self._device.type}.values())

    def _fake(self, tensor: Tensor) -> Tensor:
        with self._mode, torch.no_grad():
            storage = tensor.untyped_storage()
            if storage._cdata not in self._made:
                count = storage.nbytes() // tensor.element_size()
                self._made[storage._cdata] = torch.empty(count, dtype=tensor.dtype, device=self._device)
            base = self._made[storage._cdata]
            return base.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _twin(model: nn.Module, fake: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the model whose tensors have no memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(fake(parameter.data), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = fake(buffer)
    return copy.deepcopy(model, memo)  # for a compiled model, a plain one
