"""Measuring on a device that others use too: measurements are made within a context that the others provide."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

_contexts: list[Callable[[], AbstractContextManager[Any]]] = [contextlib.nullcontext]


@contextlib.contextmanager
def measured_within(context: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """While this is active, operators are measured within the context that `context` returns, such as a lock of the device."""
    _contexts.append(context)
    try:
        yield
    finally:
        _contexts.pop()


def measuring() -> AbstractContextManager[Any]:
    return _contexts[-1]()
