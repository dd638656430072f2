"""The result of a capture."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..native import _torch
from .layouts import Layout


@dataclass
class Captured:
    """A program, and the texts that identify the layouts of its calls' results. Ops that are parts of one call share
    one text, and each makes some of the results."""

    program: _torch.Program
    keys: dict[int, str]  # by op
    asked: dict[str, list[Layout | None] | None] = field(default_factory=dict)  # layouts that the capture asked for, and got
    kernels: list[str] = field(default_factory=list)  # files of generated kernels
