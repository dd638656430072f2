"""The switches of the environment: each is read, refuses what makes no sense, and is on the page that lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reprise import switches

PAGE = Path(__file__).resolve().parents[2] / "docs/pytorch.md"
READERS = {"REPRISE_WAITING_SECONDS": (switches.waiting_seconds, {"0": 0.0, "2.5": 2.5, "": None}, "-1"),
           "REPRISE_KEEP_TRACES": (switches.keeps_traces, {"0": False, "1": True, "": True}, "yes"),
           "REPRISE_TRUST_TRACES": (switches.trusts_traces, {"0": False, "1": True, "": True}, "01"),
           "REPRISE_SPLIT_CONVOLUTIONS": (switches.splits_convolutions, {"0": False, "1": True, "": None}, "2"),
           "REPRISE_MOST_SHAPES": (switches.most_shapes, {"3": 3, "": 64}, "0"),
           "REPRISE_MOST_SIZES": (switches.most_sizes, {"3": 3, "": None}, "1.5"),
           "REPRISE_CLOCK": (switches.clock, {"": switches.CLOCKS["wall"], **switches.CLOCKS}, "sun")}


@pytest.mark.parametrize("name", READERS)
def test_a_switch_is_read_when_it_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, values, bad = READERS[name]
    for text, value in values.items():
        monkeypatch.setenv(name, text)
        assert read() == value
    monkeypatch.setenv(name, bad)
    with pytest.raises(ValueError, match=rf"{name}='{bad}' in the environment: give "):
        read()


def test_every_switch_is_on_the_page() -> None:
    named = set(re.findall(r"^\| `(REPRISE_\w+)`", PAGE.read_text(), re.MULTILINE))
    assert named == {*READERS, "REPRISE_CACHE_DIR"}
    assert {*READERS} == set(re.findall(r'"(REPRISE_\w+)"', Path(switches.__file__).read_text()))
