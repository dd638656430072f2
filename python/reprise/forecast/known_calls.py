"""Measured calls, found again at other batch sizes.

At two batch sizes, the text of one call has the same words, and numbers that stay the same or grow with the batch:
Float[8 64 ] and Float[16 64 ]. A call is looked up by its words and the numbers that stay the same, because a cache
has tens of thousands of calls.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping

NUMBER = re.compile(r"(\d+)")

Words = tuple[str, ...]
Numbers = tuple[str, ...]
Places = tuple[int, ...]
Cost = tuple[int, int]  # time and workspace


class KnownCalls:
    """Calls measured so far, with what they cost."""

    def __init__(self, calls: Mapping[str, Cost]) -> None:
        self._by_words: dict[Words, list[tuple[Numbers, Cost]]] = {}
        for call, cost in calls.items():
            words, numbers = taken_apart(call)
            self._by_words.setdefault(words, []).append((numbers, cost))
        self._by_rest: dict[tuple[Words, Places], dict[Numbers, list[tuple[Numbers, Cost]]]] = {}
        self._found: dict[tuple[int, str, int, str, bool], dict[int, Cost]] = {}

    def at_any_batch(self, batch1: int, call1: str, batch2: int, call2: str,
                     text_at: Callable[[int], str | None] | None = None) -> dict[int, Cost]:
        """Batch size -> time and workspace, for each size at which the call was measured that is `call1` at batch size
        `batch1` and `call2` at `batch2`.

        text_at: gives the text of the call at a size, for calls with numbers that do not grow along a line."""
        key = (batch1, call1, batch2, call2, text_at is not None)
        if key not in self._found:
            self._found[key] = dict(self._look_up(*key[:4], text_at))
        return self._found[key]

    def _look_up(self, batch1: int, call1: str, batch2: int, call2: str,
                 text_at: Callable[[int], str | None] | None) -> Iterator[tuple[int, Cost]]:
        (words, first), (other_words, second) = taken_apart(call1), taken_apart(call2)
        grow = tuple(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        lines = [(int(first[i]), int(second[i]) - int(first[i])) for i in grow]
        if words != other_words or not lines or any(slope == 0 for _, slope in lines):  # .5 and .05
            return
        for numbers, cost in self._with_rest(words, grow).get(_rest(first, grow), ()):
            # number = first + slope * (batch - batch1), the same batch for all
            sizes = [divmod((int(numbers[i]) - y) * (batch2 - batch1), slope) for i, (y, slope) in zip(grow, lines, strict=True)]
            # The number that grows least is most likely the size itself.
            size, remainder = sizes[min(range(len(lines)), key=lambda i: abs(lines[i][1]))]
            if remainder != 0 or batch1 + size < 1:
                continue
            if len(set(sizes)) == 1 or (text_at is not None and text_at(batch1 + size) == _put_together(words, numbers)):
                yield batch1 + size, cost

    def _with_rest(self, words: Words, grow: Places) -> dict[Numbers, list[tuple[Numbers, Cost]]]:
        if (words, grow) not in self._by_rest:
            index: dict[Numbers, list[tuple[Numbers, Cost]]] = {}
            self._by_rest[words, grow] = index
            for numbers, cost in self._by_words.get(words, ()):
                index.setdefault(_rest(numbers, grow), []).append((numbers, cost))
        return self._by_rest[words, grow]


def taken_apart(call: str) -> tuple[Words, Numbers]:
    parts = NUMBER.split(call)
    return tuple(parts[::2]), tuple(parts[1::2])


def _put_together(words: Words, numbers: Numbers) -> str:
    return "".join(part for pair in itertools.zip_longest(words, numbers, fillvalue="") for part in pair)


def _rest(numbers: Numbers, grow: Places) -> Numbers:
    return tuple(number for i, number in enumerate(numbers) if i not in grow)
