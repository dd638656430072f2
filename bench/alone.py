"""A lock for measurements: processes that measure at the same time would disturb each other."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Waits until no other process holds the lock, which is a file, and holds it. If the process dies, the lock is released.
    With None, nothing is locked, because there are no other processes."""
    if lock is None:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # Closing is not enough: a process forked meanwhile has the file open, too.
