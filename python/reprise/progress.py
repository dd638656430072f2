"""Shows one line on a terminal while something takes long, and counts where the time before a step goes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from . import switches

MANY = 100_000  # what is counted then, such as a planner's work, means nothing to people


class Progress:
    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self.what = what
        self.stream = stream or sys.stderr
        self.shown = False
        self.last = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.stream.isatty() or now - self.last < 0.1:
            return
        self.last = now
        self.shown = True
        how_far = f"{done}/{total}" if total < MANY else f"{100 * done // total} %"
        self.stream.write(f"\rreprise: {self.what} {how_far}\x1b[K")
        self.stream.flush()

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


@dataclass
class _Open:
    name: str
    counted_until: float


class Preparation:
    """What has to be done before a step can run: the seconds of each phase, those of phases within it not counted.
    The terminal says which one is going on."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.clock = switches.clock()
        self.seconds: dict[str, float] = defaultdict(float)
        self._stream = stream or sys.stderr
        self._open: list[_Open] = []

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begin = self.clock()
        if self._open:
            self._count(begin)
        self._open.append(_Open(name, begin))
        self._show()
        try:
            yield
        finally:
            now = self.clock()
            self._count(now)
            self._open.pop()
            if self._open:
                self._open[-1].counted_until = now
            self._show()

    def _count(self, now: float) -> None:
        phase = self._open[-1]
        self.seconds[phase.name] += now - phase.counted_until
        phase.counted_until = now

    def _show(self) -> None:
        if self._stream.isatty():
            self._stream.write(f"\rreprise: {self._open[-1].name}\x1b[K" if self._open else "\r\x1b[K")
            self._stream.flush()
