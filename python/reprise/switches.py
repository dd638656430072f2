"""What the environment may set, for tests, benchmarks and whoever looks for a fault (docs/pytorch.md#switches).

Each is read where it is used, so a change holds from then on. None of them changes results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "processor": time.thread_time}


def waiting_seconds() -> float | None:
    """How long a step waits for a plan; the rest of the search goes on beside the steps."""
    return _setting("REPRISE_WAITING_SECONDS", _seconds, "a number of seconds")


def keeps_traces() -> bool:
    """Whether traced steps are looked for in the cache, and kept there."""
    return _setting("REPRISE_KEEP_TRACES", _flag, "0 or 1") is not False


def trusts_traces() -> bool:
    """Whether results that AOTAutograd found on fake tensors are taken from there, and not found again."""
    return _setting("REPRISE_TRUST_TRACES", _flag, "0 or 1") is not False


def splits_convolutions() -> bool | None:
    """Whether backward of a large convolution runs as two calls; None: where the device gains by it."""
    return _setting("REPRISE_SPLIT_CONVOLUTIONS", _flag, "0 or 1")


def most_shapes() -> int:
    """How many shapes of a model are captured one by one."""
    return _setting("REPRISE_MOST_SHAPES", _count, "a number above 0") or 64


def most_sizes() -> int | None:
    """The number of sizes of one step whose sessions are kept."""
    return _setting("REPRISE_MOST_SIZES", _count, "a number above 0")


def clock() -> Callable[[], float]:
    """What measures the phases before a step: seconds, or those that the processor gave to the calling thread."""
    return _setting("REPRISE_CLOCK", CLOCKS.__getitem__, " or ".join(CLOCKS)) or time.perf_counter


def _setting(name: str, read: Callable[[str], T], what: str) -> T | None:
    """None if the environment does not set it."""
    text = os.environ.get(name, "")
    if not text:
        return None
    try:
        return read(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name}={text!r} in the environment: give {what}") from None


def _seconds(text: str) -> float:
    return _checked(float(text), float(text) >= 0)


def _count(text: str) -> int:
    return _checked(int(text), int(text) > 0)


def _flag(text: str) -> bool:
    return _checked(text == "1", text in ("0", "1"))


def _checked(value: T, is_good: bool) -> T:
    if not is_good:
        raise ValueError
    return value
