"""Gradients of sharded parameters that are left unreduced between micro-batches (`set_requires_gradient_sync`).

The whole gradient of each parameter waits in each process. Further ones are added to it, and the micro-batch that synchronizes
adds its own and reduces the sum, as with FSDP2.

For autograd, the whole gradient is that of a *holder*: a leaf with the shape of the whole parameter and memory for one number.
A step that leaves gradients unreduced has holders among its inputs, and autograd sets and adds up what waits like any other
gradient. A step that synchronizes has what waits among its inputs. So these are steps of their own, each with a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import RepriseError, Unsupported


class Unreduced:
    """The gradient of one parameter."""

    def __init__(self, parameter: nn.Parameter, dtype: torch.dtype) -> None:
        """dtype: of gradients that wait."""
        strides = [0] * parameter.dim()
        self.holder = torch.empty_strided(parameter.shape, strides, dtype=dtype, device=parameter.device).requires_grad_()
        self.taker: Tensor | None = None  # the holder, in a step that leaves gradients unreduced
        self.waiting: Tensor | None = None  # in a step that synchronizes

    def begin_call(self, syncs: bool) -> None:
        self.taker, self.waiting = (None, self.holder.grad) if syncs else (self.holder, None)

    def drop(self) -> None:
        self.holder.grad = self.waiting = None


class Accumulation:
    """The gradients of one model."""

    def __init__(self) -> None:
        self.syncs = True
        self.changes = 0  # of what waits
        self.gradients: dict[str, Unreduced] = {}  # by the name of the parameter

    def begin_call(self) -> None:
        """Before a call of the compiled model."""
        for gradient in self.gradients.values():
            gradient.begin_call(self.syncs)

    def refuse_without_plan(self) -> None:
        """Before a call of the model with gradients, but without a plan."""
        if not self.syncs or any(gradient.holder.grad is not None for gradient in self.gradients.values()):
            raise RepriseError("gradients can be left unreduced (set_requires_gradient_sync) where steps are planned: pass the "
                               "model to reprise.compile, and call it itself")

    @property
    def tensors(self) -> list[Tensor]:
        return [gradient.holder for gradient in self.gradients.values()]


class MicroBatch:
    """A call of a model, which its backward has to meet as it left it."""

    def __init__(self, accumulation: Accumulation, inputs: Sequence[Any], readers: Sequence[int]) -> None:
        """inputs: of the step, and how often its graph reads each. Raises before the step runs if something that waits would not
        be reduced, or twice."""
        self._accumulation = accumulation
        self._syncs, self._changes = accumulation.syncs, accumulation.changes
        times = {id(given): count for given, count in zip(inputs, readers, strict=False)}
        for name, gradient in accumulation.gradients.items():
            if gradient.waiting is None or (found := times.get(id(gradient.waiting), 0)) == 1:
                continue
            how = "does not read it" if found == 0 else f"reads it in {found} parts of its graph"
            raise RepriseError(f"'{name}' has a gradient that was left unreduced, and the micro-batch that synchronizes {how}: "
                               "let all micro-batches between two reductions read the same parameters, or call "
                               "set_requires_gradient_sync(True)")

    def begin_backward(self) -> None:
        """Raises before backward runs if it would lose what waits, or reduce it twice."""
        if self._accumulation.syncs != self._syncs:
            raise RepriseError("set_requires_gradient_sync() was called between a call of the model and its backward: call it "
                               "before the model")
        if self._syncs and self._accumulation.changes != self._changes:
            raise RepriseError("gradients that were left unreduced have changed between a call of the model, which is to reduce "
                               "them, and its backward: run backward of one micro-batch before the model is called with the next")

    def end_backward(self) -> None:
        waiting = [gradient for gradient in self._accumulation.gradients.values() if gradient.waiting is not None]
        if not self._syncs or waiting:
            self._accumulation.changes += 1
        for gradient in waiting:
            gradient.drop()


def gradient_dtype(parameter: nn.Parameter, param_dtype: torch.dtype | None, reduce_dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of gradients of a parameter that wait: the one in which they are averaged."""
    computed = param_dtype if param_dtype is not None and parameter.is_floating_point() else parameter.dtype
    kept = computed if reduce_dtype is None else reduce_dtype
    if torch.promote_types(computed, kept) != kept:
        raise Unsupported(f"gradients are computed in {computed} and averaged in {kept}, so those that wait would be rounded "
                          f"twice: give reprise.shard a reduce_dtype that holds every number of {computed}, or reduce the "
                          "gradients of each micro-batch")
    return kept
