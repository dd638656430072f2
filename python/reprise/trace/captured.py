"""What a capture gives."""

from __future__ import annotations

from dataclasses import dataclass

from ..native import _torch


@dataclass
class Captured:
    """A program, and by which texts the layouts of its calls' results are known. Ops that are parts of one call have one
    text: each gives some of the results."""

    program: _torch.Program
    keys: dict[int, str]  # by op
