"""Python's garbage collector, and when it rests."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def resting_collector() -> Iterator[None]:
    """For work that makes many objects that stay, such as importing and tracing: the collector would look at all of them
    again and again, and find next to nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
