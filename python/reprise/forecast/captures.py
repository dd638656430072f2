"""Captures of a step at sizes of its inputs that are asked about."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..errors import first_line
from ..native import _torch
from ..trace import dry_run
from ..trace.joint_graph import EAGER
from ..trace.layouts import Layouts
from ..trace.sharding import Sharding
from .known_layouts import AnyBatch

log = logging.getLogger("reprise")

MOST = 1 << 24  # sizes above are not looked at

Sizes = Mapping[int, int]  # by dimension; every tensor that has the inputs' own size there gets this one


class Captures:
    """Captures one size after another; or, once `trace_once` has been called, reads most of them off one trace."""

    def __init__(self, model: nn.Module, inputs: dry_run.Inputs, device: torch.device, capture_device: torch.device,
                 is_known: bool, sharding: Sharding | None = None) -> None:
        """is_known: uses the layouts that were found on the device."""
        self.model, self.inputs, self._sharding = model, inputs, sharding
        self._device, self._capture_device, self._is_known = device, capture_device, is_known
        self._family: dry_run.DryFamily | None = None
        self._own: dry_run.DryStep | None = None  # at the sizes of the inputs, with eager's operators

    @property
    def are_quick(self) -> bool:
        """Whether another size takes milliseconds."""
        return self._family is not None

    def own_size(self, dim: int) -> int | None:
        """The size of the first tensor that has this dimension."""
        first = next((t for t in tree_leaves(self.inputs) if isinstance(t, Tensor) and t.dim() > dim), None)
        return None if first is None else first.shape[dim]

    def at(self, sizes: Sizes, engine: str = EAGER) -> dry_run.DryStep:
        sizes = {dim: size for dim, size in sizes.items() if size != self.own_size(dim)}
        if not sizes and engine == EAGER and self._own is not None:
            return self._own
        resize = self._resize(sizes)
        if self._family is not None and engine == EAGER and (member := self._family.at(resize)) is not None:
            return member
        begin = time.monotonic()
        step = dry_run.capture(self.model, self.inputs, self._capture_device, self._layouts(), resize, engine, self._sharding)
        log.info("%s: captured at %s in %.1f s", type(self.model).__name__, _words(sizes), time.monotonic() - begin)
        if not sizes and engine == EAGER:
            self._own = step
        return step

    def trace_once(self, dims: Sequence[int]) -> None:
        """Traces the step for any size of these dimensions. Where that is not possible, captures stay slow."""
        begin, name = time.monotonic(), type(self.model).__name__

        def varies(tensor: Tensor) -> list[int]:
            return [dim for dim in dims if tensor.dim() > dim and tensor.shape[dim] == self.own_size(dim)]

        try:
            like, layouts = self.at({}), self._layouts()
            self._family = dry_run.DryFamily(self.model, self.inputs, like, layouts, varies, self._sharding)
        except Exception as error:  # Whatever torch.compile cannot do with symbols, it may do without.
            log.info("%s: every size is captured by itself: %s", name, first_line(error))
        else:
            log.info("%s: traced for any size in %.1f s", name, time.monotonic() - begin)

    def limit(self, dim: int) -> tuple[int, str] | None:
        """The largest size of a dimension with which the model can be called, and what it says to a larger one; None if
        none was found."""
        if self._family is None:
            return None
        holds, fails = self.own_size(dim) or 1, MOST
        while fails - holds > 1:
            size = min(2 * holds, (holds + fails) // 2)
            if self._family.holds_at(self._resize({dim: size})):
                holds = size
            else:
                fails = size
        if fails == MOST:
            return None
        try:
            self.at({dim: fails})
        except Exception as error:
            return holds, first_line(error)
        return None  # It does something else with larger ones.

    def _resize(self, sizes: Sizes) -> dry_run.Resize:
        def resize(tensor: Tensor) -> list[int]:
            return [sizes[dim] if dim in sizes and size == self.own_size(dim) else size
                    for dim, size in enumerate(tensor.shape)]

        return resize

    def _layouts(self) -> Layouts:
        return AnyBatch(_torch.CostBook(self._device).layouts) if self._is_known else {}


def _words(sizes: Sizes) -> str:
    return ", ".join(f"size {size} of dimension {dim}" for dim, size in sorted(sizes.items())) or "its own sizes"
