"""One process at a time: measurements of several would disturb each other."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Waits until no other holds the lock, which is a file, and holds it. A process that dies lets go of it.
    None: there are no others."""
    if lock is None:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file open, too
