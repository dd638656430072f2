"""A captured step: the program, and what the runtime has to know of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch

from .native import _torch


@dataclass
class Captured:
    """A program and what the runtime has to know of it."""

    program: _torch.Program
    resident_bytes: int  # of the inputs and constants, as the graph counts them
    constants: list[torch.Tensor]
    seed_values: list[int]
    seed_bytes: list[int]
    output_values: list[int]  # of forward
    caller_value: int  # what the caller keeps from between forward and backward
    estimates: dict[int, int]  # op -> time by the roofline, ns
    keys: dict[int, str]  # op -> what its layouts are known by
    gradient_values: list[int] = field(default_factory=list)

    @cached_property
    def optional_seeds(self) -> set[int]:
        """Positions of the gradients that the caller may not have."""
        return set(self.program.optional_seeds)

    def absent_seeds(self) -> set[int]:
        """Positions, until it is known: a model that returns its loss is trained by it alone."""
        number = _torch.granted_bytes(self.program.device, 8)
        if not self.seed_bytes or min(self.seed_bytes) > number:
            return set()
        return {i for i in self.optional_seeds if self.seed_bytes[i] > number}

    def output_bytes(self, absent: set[int]) -> int:
        """Of the outputs of forward that get gradients."""
        return sum(size for i, size in enumerate(self.seed_bytes) if i not in absent)
