"""Divisions of a budget among regions, beside all possible ones."""

from __future__ import annotations

import itertools
import random

import pytest

from reprise import _core, division
from reprise.division import Call, Choice, divide, smallest_room

PLAN = _core.Plan([])


def random_calls(draw: random.Random) -> list[Call]:
    def choice() -> Choice:
        return Choice(PLAN, "none", draw.randrange(30), draw.randrange(20), draw.randrange(30), draw.randrange(1, 100), 0)

    return [Call([choice() for _ in range(draw.randint(1, 4))], draw.randrange(20), draw.randrange(20), draw.randrange(20))
            for _ in range(draw.randint(1, 5))]


def levels(calls: list[Call], chosen: tuple[Choice, ...]) -> list[int]:
    """Bytes at every instant of the step, action by action."""
    kept, found = 0, []
    for call, choice in zip(calls, chosen, strict=True):
        found.append(call.before_forward + kept + choice.forward_bytes)
        kept += choice.kept_bytes
        found.append(call.after + kept)
    for call, choice in zip(reversed(calls), reversed(chosen), strict=True):
        found += [call.after + kept, call.before_backward + kept + choice.growth_bytes]
        kept -= choice.kept_bytes
    return found


@pytest.mark.parametrize("seed", range(300))
def test_a_division_is_the_fastest_of_all_that_fit(seed: int) -> None:
    draw = random.Random(seed)
    calls = random_calls(draw)
    room = draw.randrange(10, 120)
    every = list(itertools.product(*(call.choices for call in calls)))
    fitting = [chosen for chosen in every if max(levels(calls, chosen)) <= room]
    found = divide(calls, room)
    if not fitting:
        assert found is None
    else:
        assert found is not None
        assert max(levels(calls, tuple(found))) <= room
        assert sum(c.time_ns for c in found) == min(sum(c.time_ns for c in chosen) for chosen in fitting)
    assert smallest_room(calls) == min(max(levels(calls, chosen)) for chosen in every)


def test_many_regions_keep_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer states than there are sums, a division still fits, and is close to the best."""
    draw = random.Random(7)
    calls = [Call([Choice(PLAN, "none", 5, kept, 5, 1000 - 40 * kept + draw.randrange(40), 0) for kept in range(20)], 3, 3, 3)
             for _ in range(40)]
    best = divide(calls, 300)
    monkeypatch.setattr(division, "MAX_STATES", 16)
    found = divide(calls, 300)
    assert best is not None and found is not None
    assert max(levels(calls, tuple(found))) <= 300
    assert sum(c.time_ns for c in found) <= 1.02 * sum(c.time_ns for c in best)
