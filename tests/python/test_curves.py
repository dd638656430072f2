"""Tests how a notebook shows a curve."""

from __future__ import annotations

import re

import pytest

from reprise.show.curve import CurvePoint, TimeMemoryCurve

MIB = 1 << 20


def curve(low: int, high: int, slowest_ns: int) -> TimeMemoryCurve:
    plain = CurvePoint(high, 1000, 0, 1000)
    return TimeMemoryCurve("net", [CurvePoint(low, slowest_ns, slowest_ns - 1000, 1000), plain], plain, low, False)


@pytest.mark.parametrize(("low", "high", "slowest_ns", "unit", "sizes", "shares"), [
    (48 * MIB, 121 * MIB, 1400, "MiB", ["50", "60", "70", "80", "90", "100", "110", "120"],
     ["0", "10", "20", "30", "40"]),
    (1200 * MIB, 2500 * MIB, 2040, "GiB", ["1.2", "1.4", "1.6", "1.8", "2", "2.2", "2.4"],
     ["0", "20", "40", "60", "80", "100"]),
    (100, 700, 1010, "B", ["100", "200", "300", "400", "500", "600", "700"], ["0", "1", "2", "3", "4", "5"]),
])
def test_ticks_are_round_and_axes_have_titles(low: int, high: int, slowest_ns: int, unit: str, sizes: list[str],
                                              shares: list[str]) -> None:
    texts = re.findall(r">([^<>]+)</text>", curve(low, high, slowest_ns)._repr_html_())
    assert f"peak memory, {unit}" in texts and "more time" in texts
    assert [text[1:-2] for text in texts if text.startswith("+")] == shares
    assert [text for text in texts if re.fullmatch(r"[\d.]+", text)] == sizes


def test_a_picture_of_nothing_is_one() -> None:
    nothing = CurvePoint(0, 0, 0, None)
    assert TimeMemoryCurve("empty", [], nothing, None, False)._repr_html_().startswith("<svg")
