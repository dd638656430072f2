"""A lowered step as plain data: launches of generated kernels and calls of ATen, over memory that has names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

# What forward saves for backward. NEAR: what torch.compile saves if memory does not matter. FAR: less, because chains of
# cheap operators are computed again inside backward's kernels.
NEAR, FAR = "near", "far"
PARTITIONS = (NEAR, FAR)


@dataclass(frozen=True)
class Form:
    """In which form a step is lowered."""

    partition: str = NEAR
    absent: frozenset[int] = frozenset()  # outputs of forward for which backward gets no gradient


FIRST_FORM = Form()


@dataclass(frozen=True)
class Part:
    """Memory by its name, as a call sees it."""

    memory: str
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: torch.device

    @property
    def extent(self) -> int:
        """Elements from the beginning of the memory to the end of the last one."""
        if 0 in self.sizes:
            return 0
        return self.offset + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True)) + 1


@dataclass(frozen=True)
class Allocation:
    """Memory that the first launch or call that names it makes."""

    part: Part
    size: int  # bytes


@dataclass(frozen=True)
class Scratch:
    """Memory that a kernel needs while it runs, filled with zeros."""

    size: int  # bytes


@dataclass(frozen=True)
class Launch:
    """One run of a generated kernel. Its arguments are parts of memory with whether it writes them, scratch memory, and
    numbers."""

    kernel: str
    arguments: tuple[tuple[Part, bool] | Scratch | int | float, ...]
    types: tuple[str, ...]
    flows: dict[str, frozenset[str]]  # for memory that it writes: the memory that this depends on
    atomic: bool  # adds in any order
    scope: str
    over: tuple[tuple[str, str], ...]  # (memory that it makes, memory of an operand that this may lie over)


@dataclass(frozen=True)
class Extern:
    """One call of ATen. Parts stand for tensors in `args` and `kwargs`; `out` is memory it writes to, `results` are what it
    returns, each with its place among the returned tensors."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Part | None
    results: list[tuple[tuple[int, ...], Part]]
    name: str
    scope: str


@dataclass(frozen=True)
class Binary:
    """A kernel that was compiled and tuned for a GPU."""

    image: bytes
    function: str
    grid: tuple[int, ...]  # blocks in three dimensions, threads, bytes of shared memory
    order: tuple[int | None, ...]  # for each parameter of the function: which argument of the launch; None: null


@dataclass
class Lowered:
    """Forward or backward: what is defined and what runs, in order."""

    inputs: list[str]
    outputs: list[Part | None]
    kernels: dict[str, str]  # source by name
    constants: dict[str, torch.Tensor]
    items: list[Allocation | Launch | Extern] = field(default_factory=list)
    layout_opt: bool = False


@dataclass
class LoweredStep:
    forward: Lowered
    backward: Lowered
    saved: list[str]  # names of backward's inputs that forward returns after its own outputs
    samples: dict[str, int]  # by name of such an input: a number that its kernels can be tried with, where 0 will not do


@dataclass(frozen=True)
class KernelFile:
    """Where a kernel is, and how it is called."""

    file: str
    function: str
    grid: tuple[int, ...]  # empty on the CPU
    order: tuple[int | None, ...]  # for each parameter: which argument of the launch; None: null


@dataclass
class CompiledStep:
    """A lowered step whose kernels lie in files."""

    lowered: LoweredStep
    forward: dict[str, KernelFile]  # by name of the kernel
    backward: dict[str, KernelFile]

    @property
    def files(self) -> set[str]:
        return {kernel.file for kernels in (self.forward, self.backward) for kernel in kernels.values()}
