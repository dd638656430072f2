"""The result of a capture."""

from __future__ import annotations

from dataclasses import dataclass

from ..native import _torch


@dataclass
class Captured:
    """A program, and the texts that identify the layouts of its calls' results. Ops that are parts of one call share
    one text, and each makes some of the results."""

    program: _torch.Program
    keys: dict[int, str]  # by op
