"""Divisions of a budget among regions, beside all possible ones."""

from __future__ import annotations

import itertools
import random

import pytest

from reprise import _core
from reprise.division import Call, Choice, Event, divide, divide_alike, highest, smallest_room, smallest_room_alike

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


def test_many_regions_keep_what_fits() -> None:
    """With fewer states than there are sums, a division still fits, and is close to the best."""
    draw = random.Random(7)
    calls = [Call([Choice(PLAN, "none", 5, kept, 5, 1000 - 40 * kept + draw.randrange(40), 0) for kept in range(20)], 3, 3, 3)
             for _ in range(40)]
    best = divide(calls, 300)
    found = divide(calls, 300, most_states=16)
    assert best is not None and found is not None
    assert max(levels(calls, tuple(found))) <= 300
    assert sum(c.time_ns for c in found) <= 1.02 * sum(c.time_ns for c in best)


def random_events(draw: random.Random, calls: int) -> list[Event]:
    """Forward and backward of calls in any order in which a call's backward comes after its forward."""
    left, opened, events = list(range(calls)), [], []
    while left or opened:
        is_backward = bool(opened) and (not left or draw.random() < 0.5)
        call = opened.pop(draw.randrange(len(opened))) if is_backward else left.pop(0)
        if not is_backward:
            opened.append(call)
        events.append(Event(call, is_backward, draw.randrange(20), draw.randrange(20)))
    return events


@pytest.mark.parametrize("seed", range(200))
def test_calls_that_are_not_nested_fit_alike(seed: int) -> None:
    draw = random.Random(seed)
    groups = [draw.randrange(1 + seed % 2) for _ in range(draw.randint(1, 6))]
    choices = [[choice for call in random_calls(draw) for choice in call.choices] for _ in range(1 + seed % 2)]
    events = random_events(draw, len(groups))
    room = draw.randrange(20, 120)

    every = [[made[group] for group in groups] for made in itertools.product(*choices)]
    fitting = [sum(c.time_ns for c in chosen) for chosen in every if highest(events, chosen) <= room]
    found = divide_alike(events, groups, choices, room)
    if found is not None:
        assert highest(events, found) <= room
        assert all(found[i] is found[j] for i, j in itertools.combinations(range(len(groups)), 2) if groups[i] == groups[j])
    if len(choices) == 1:
        assert (found is None) == (not fitting)
        assert found is None or sum(c.time_ns for c in found) == min(fitting)
        assert smallest_room_alike(events, groups, choices) == min(highest(events, chosen) for chosen in every)


def test_events_of_nested_calls_take_what_their_calls_take() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        calls = random_calls(draw)
        chosen = [draw.choice(call.choices) for call in calls]
        events = [Event(i, False, call.before_forward, calls[i - 1].after if i else 0) for i, call in enumerate(calls)]
        events += [Event(i, True, call.before_backward, call.after) for i, call in reversed(list(enumerate(calls)))]
        assert highest(events, chosen) == max(levels(calls, tuple(chosen)))
