"""A captured step: the program, and what planning has to know of it beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch

from .native import _torch


@dataclass
class Captured:
    """A program, its times by the roofline, and what its layouts are known by. Two ops that are parts of one call have
    one key: the layouts of each are those of the results that it gives."""

    program: _torch.Program
    estimates: dict[int, int] = field(default_factory=dict)  # by op, ns
    keys: dict[int, str] = field(default_factory=dict)  # by op

    def __post_init__(self) -> None:
        self.seed_values: list[int] = self.program.seed_values
        self.seed_bytes = [self.program.value_bytes(value) for value in self.seed_values]
        self.output_values: list[int] = self.program.output_values
        self.gradient_values: list[int] = self.program.gradient_values
        self.caller_value: int = self.program.caller_value
        self.resident_bytes: int = self.program.resident_bytes
        self.constants: list[torch.Tensor] = self.program.constants

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
