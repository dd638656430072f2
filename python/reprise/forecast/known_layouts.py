"""Layouts of results in memory, derived for other batch sizes."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

from ..trace.layouts import Layout, Layouts
from .known_calls import Words, taken_apart


class AnyBatch(dict[str, Any]):
    """Known layouts, and at other batch sizes the layouts that follow from two known ones: every number in
    them grows with the batch along a line."""

    def __init__(self, known: Layouts) -> None:
        super().__init__(known)
        self.alike: dict[Words, list[tuple[list[int], list[Layout | None]]]] = {}
        for key, layouts in known.items():
            words, numbers = taken_apart(key)
            self.alike.setdefault(words, []).append(([int(number) for number in numbers], layouts))

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = self._by_line(key)
        found = self[key]
        return default if found is None else found

    def _by_line(self, key: str) -> list[Layout | None] | None:
        words, numbers = taken_apart(key)
        wanted = [int(number) for number in numbers]
        for (a, first), (b, second) in itertools.permutations(self.alike.get(words, ()), 2):
            step = next(((w - x, y - x) for w, x, y in zip(wanted, a, b, strict=True) if x != y), None)
            if step is None or any((w - x) * step[1] != (y - x) * step[0] for w, x, y in zip(wanted, a, b, strict=True)):
                continue
            with contextlib.suppress(ValueError):
                found: list[Layout | None] = _on_line(first, second, *step)
                return found
        return None


def _on_line(a: Any, b: Any, part: int, whole: int) -> Any:
    """The layout at part / whole of the way from a to b. ValueError if there is no such layout."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return type(a)(_on_line(x, y, part, whole) for x, y in zip(a, b, strict=True))
    if isinstance(a, int) and isinstance(b, int):
        if (b - a) * part % whole != 0:
            raise ValueError
        return a + (b - a) * part // whole
    if a != b:
        raise ValueError
    return a
