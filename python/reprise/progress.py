"""Shows one line on a terminal while something takes long, and nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class Progress:
    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self.label = label
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
        self.stream.write(f"\rreprise: {self.label} {done}/{total}\x1b[K")
        self.stream.flush()

    def __exit__(self, *_: object) -> None:
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
