"""How many bytes the allocator of a device has handed out, as budgets count them (docs/pytorch.md#counting-bytes).

On the CPU, a meter in front of PyTorch's allocator counts; it begins when `install_meter` or `reprise.compile` is called.
On CUDA, PyTorch counts by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .native import _torch


def install_meter() -> None:
    """Begins to count what is allocated on the CPU."""
    _torch.install_meter()


def allocated_bytes(device: torch.device) -> int:
    """The bytes that are allocated now."""
    return _torch.allocated_bytes(device)


def peak_bytes(device: torch.device) -> int:
    """The most bytes at any instant since `reset_peak`. On CUDA, the first steps of a plan reset it, too."""
    return _torch.user_peak_bytes(device)


def reset_peak(device: torch.device) -> None:
    _torch.reset_user_peak(device)


def storage_bytes(tensors: Sequence[Tensor], device: torch.device) -> int:
    """The bytes of the memory on the device in which these tensors and their gradients lie, each counted once."""
    return _torch.storage_bytes(tensors, device)
