"""The state of autocast, to look at it and to set it again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

Autocast = tuple[str, torch.dtype, bool, bool]  # device, dtype, is it enabled, has it a cache


def autocast_now(device: torch.device) -> list[Autocast]:
    return [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), torch.is_autocast_cache_enabled())
            for kind in dict.fromkeys((device.type, "cpu"))]


def is_within_autocast() -> bool:
    """Also within one that is disabled. At the end of the outermost one, PyTorch forgets what it has cast."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting() > 0


@contextlib.contextmanager
def set_autocast(settings: Sequence[Autocast]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for kind, dtype, enabled, cache in settings:
            stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cache))
        yield
