"""Small charts as SVG. They are narrow and have large letters and the legend below, so that they can be read on light and dark
pages and on a phone."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass, field

WIDTH, PLOT = 520, 290
LEFT, RIGHT, TOP, BELOW = 54, 18, 34, 50
INSET = 12  # keeps points away from the numbers of the axes
LETTER, LINE = 7.8, 24  # an upper bound on the average width of a letter, and the height of a line of the legend
STRONG = ("#3b78d8", "#8a5fe0")  # the colours of the series that a picture is about
COLOURS = ("#7f8894", "#c27a14", "#cf4436", "#b8559a", "#2f9070", "#6b8a2a")
GREY = "#757d88"  # has the same contrast on a white page and on a dark one
TEXT = f'font-family="system-ui,sans-serif" font-size="15" fill="{GREY}"'
SHAPES = ("M-5 -5H5V5H-5Z", "M0 -6.5L6 5H-6Z", "M0 -7L7 0L0 7L-7 0Z", "M0 6.5L6 -5H-6Z", "M-6 -3H-3V-6H3V-3H6V3H3V6H-3V3H-6Z",
          "M-7 -3.5H7V3.5H-7Z")
ROUND = "M-5 0A5 5 0 1 0 5 0A5 5 0 1 0 -5 0Z"


@dataclass
class Series:
    name: str
    points: list[tuple[float, float]]
    line: bool = False
    marks: bool = True
    strong: bool = False
    dotted: bool = False
    labels: list[str] = field(default_factory=list)  # one for each point, shown when the mouse rests on it


def chart(title: str, x_label: str, y_label: str, series: list[Series]) -> str:
    points = [point for one in series for point in one.points]
    if not points:
        raise ValueError(f"{title}: there is nothing to draw")
    x_ticks = ticks(0.0 if min(p[0] for p in points) < 0.3 * max(p[0] for p in points) else min(p[0] for p in points),
                    max(p[0] for p in points))
    y_ticks = ticks(min(p[1] for p in points), max(p[1] for p in points))
    foot = TOP + PLOT

    def x(value: float) -> float:
        return LEFT + INSET + (value - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (WIDTH - LEFT - RIGHT - 2 * INSET)

    def y(value: float) -> float:
        return TOP + (y_ticks[-1] - value) / (y_ticks[-1] - y_ticks[0]) * PLOT

    places = _legend([one.name for one in series], foot + BELOW + LINE / 2)
    height = round(places[-1][1] + LINE / 2 + 4)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
             f'role="img" aria-label="{html.escape(title)}">',
             f'<text x="6" y="18" {TEXT}>{html.escape(y_label)}</text>']
    parts += [f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="{GREY}" opacity="0.25"/>'
              f'<text x="{LEFT - 7}" y="{y(value) + 5:.1f}" text-anchor="end" {TEXT}>{value:g}</text>' for value in y_ticks]
    parts += [f'<text x="{x(value):.1f}" y="{foot + 20}" text-anchor="middle" {TEXT}>{value:g}</text>' for value in x_ticks]
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{foot + 42}" text-anchor="end" {TEXT}>{html.escape(x_label)}</text>')
    looks = _looks(series)
    parts += [_key(one, *look, *place) for one, look, place in zip(series, looks, places, strict=True)]
    # The series that the picture is about are drawn last, on top of the others.
    parts += [_drawn(one, *look, x, y) for one, look in sorted(zip(series, looks, strict=True), key=lambda pair: pair[0].strong)]
    return "\n".join([*parts, "</svg>", ""])


def _looks(series: list[Series]) -> list[tuple[str, str]]:
    """The colour and the shape of the marks of each series."""
    used = {True: 0, False: 0}
    found = []
    for one in series:
        colours, at = STRONG if one.strong else COLOURS, used[one.strong]
        found.append((colours[at % len(colours)], ROUND if one.strong else SHAPES[at % len(SHAPES)]))
        used[one.strong] += 1
    return found


def _legend(names: list[str], first: float) -> list[tuple[float, float]]:
    """The places of the names in the legend, which has as many lines as it needs."""
    places, x, y = [], 8.0, first
    for name in names:
        width = 50 + LETTER * len(name)
        if x > 8 and x + width > WIDTH:
            x, y = 8.0, y + LINE
        places.append((x, y))
        x += width
    return places


def _stroke(one: Series, colour: str) -> str:
    return f'fill="none" stroke="{colour}" stroke-width="{3 if one.strong else 1.8}"' + (
        ' stroke-dasharray="2 5" stroke-linecap="round"' if one.dotted else "")


def _key(one: Series, colour: str, shape: str, x: float, y: float) -> str:
    text = f'<path d="M{x:.1f} {y:.1f}h22" {_stroke(one, colour)}/>' if one.line else ""
    if one.marks:
        text += f'<path class="key" transform="translate({x + 11:.1f} {y:.1f})" d="{shape}" fill="{colour}"/>'
    return text + f'<text x="{x + 28:.1f}" y="{y + 5:.1f}" {TEXT}>{html.escape(one.name)}</text>'


def _drawn(one: Series, colour: str, shape: str, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    placed = [(x(a), y(b)) for a, b in one.points]
    text = ""
    if one.line:
        text += f'<path d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in placed)}" {_stroke(one, colour)}/>'
    for i, (a, b) in enumerate(placed if one.marks else []):
        label = f"<title>{html.escape(one.labels[i])}</title>" if i < len(one.labels) else ""
        text += f'<path class="point" transform="translate({a:.1f} {b:.1f})" d="{shape}" fill="{colour}">{label}</path>'
    return text


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from below `low` to above `high`, four to nine of them."""
    spread = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(spread / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if spread / (step * factor) <= 7)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]
