"""The layouts of fake tensors in memory, and those of the device where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.utils._pytree import tree_leaves

from ..errors import Unsupported
from ..native import _torch

# The layout of a tensor that a call returns, where the device's differs from the fake tensor's: dtype, sizes, strides,
# offset, bytes of storage, kind of device; None for an undefined tensor.
Layout = tuple[str, list[int], list[int], int, int, str]
Layouts = dict[str, list[Layout | None]]


Number = Callable[[Any], Any]  # the number that an expression of sizes is at the size where layouts were found


def itself(number: Any) -> Any:
    return number


def layout_key(target: Any, args: Sequence[Any], kwargs: dict[str, Any], number: Number = itself) -> str:
    def described(leaf: Any) -> str:
        if isinstance(leaf, torch.Tensor):
            place = f"{number(leaf.storage_offset())}/{number(leaf.untyped_storage().nbytes())}"
            return f"{leaf.dtype}{tuple(map(number, leaf.shape))}{tuple(map(number, leaf.stride()))}{place}"
        return str(number(leaf))

    return f"{target}({', '.join(map(described, tree_leaves((args, kwargs))))})"


def with_layouts(result: Any, layouts: list[Layout | None], number: Number = itself) -> Any:
    """The results as the device lays them out."""
    if isinstance(result, torch.Tensor):
        return _laid_out(result, layouts[0], number)
    remaining = iter(layouts)  # a functional form may return more than the call that is run
    return type(result)(part if isinstance(part, int) else _laid_out(part, next(remaining, None), number) for part in result)


def _laid_out(fake: Any, layout: Layout | None, number: Number) -> Any:
    if layout is None or not isinstance(fake, torch.Tensor):
        return fake
    name, sizes, strides, offset, size, kind = _at_any_size(fake, layout, number) if has_symbols(fake) else layout
    dtype = getattr(torch, name)
    device = fake.device if fake.device.type == kind else torch.device(kind)
    storage = torch.empty(size // dtype.itemsize, dtype=dtype, device=device)
    return storage.as_strided(sizes, strides, offset)


def has_symbols(fake: torch.Tensor) -> bool:
    return any(isinstance(number, torch.SymInt) for number in (*fake.shape, *fake.stride()))


def _at_any_size(fake: torch.Tensor, layout: Layout, number: Number) -> Layout:
    """A layout that was found at one size, with the expressions of the fake tensor in place of its numbers: a dense tensor
    whose dimensions lie in the same order."""
    name, sizes, strides, offset, size, kind = layout
    if [number(n) for n in fake.shape] == sizes and offset == 0:
        order = sorted(range(len(sizes)), key=lambda dim: (strides[dim], sizes[dim]))
        dense: dict[int, Any] = {}
        numbers: Any = 1
        for dim in order:
            dense[dim], numbers = numbers, numbers * fake.shape[dim]
        itemsize: int = getattr(torch, name).itemsize
        if [number(dense[dim]) for dim in range(len(sizes))] == strides and number(numbers) * itemsize == size:
            return name, list(fake.shape), [dense[dim] for dim in range(len(sizes))], 0, numbers * itemsize, kind
    raise Unsupported(f"how a result lies in memory is known at one size alone: {layout}")


def geometry_of(fake: torch.Tensor, number: Callable[[Any], Any] = int) -> _torch.Geometry:
    """number: how the geometry has its numbers."""
    return _torch.Geometry(fake.dtype, [number(size) for size in fake.shape], [number(stride) for stride in fake.stride()],
                           number(fake.storage_offset()), fake.is_conj(), fake.is_neg())


def storage_of(fake: torch.Tensor) -> int:
    return int(fake.untyped_storage()._cdata)


def own_memory(fake: torch.Tensor) -> torch.Tensor:
    """The same geometry in a storage of its own."""
    storage = torch.empty(extent_bytes(fake) // fake.element_size(), dtype=fake.dtype, device=fake.device)
    return storage.as_strided(fake.shape, fake.stride(), fake.storage_offset())


def extent_bytes(fake: torch.Tensor) -> int:
    if fake.numel() == 0:
        return 0
    last: Any = fake.storage_offset() + sum((n - 1) * s for n, s in zip(fake.shape, fake.stride(), strict=True))
    size: int = (last + 1) * fake.element_size()  # of a fake tensor of any size, an expression
    return size


def at_traced_size(fake: Any) -> torch.Tensor:
    """The same tensor with numbers in place of symbols: those of the inputs with which the step was traced."""
    if not has_symbols(fake):
        return cast(torch.Tensor, fake)
    numbers = [[int(n.node.hint) if isinstance(n, torch.SymInt) else n for n in given] for given in (fake.shape, fake.stride())]
    with fake.fake_mode:
        return torch.empty_strided(*numbers, dtype=fake.dtype, device=fake.device)
