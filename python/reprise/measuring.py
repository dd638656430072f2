"""Measuring in company: what is measured on a device that others use, too, is measured within a context of theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

_contexts: list[Callable[[], AbstractContextManager[Any]]] = [contextlib.nullcontext]


@contextlib.contextmanager
def measured_within(context: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """While it lasts, operators are measured within what `context` gives: a lock of the device, say."""
    _contexts.append(context)
    try:
        yield
    finally:
        _contexts.pop()


def measuring() -> AbstractContextManager[Any]:
    return _contexts[-1]()
