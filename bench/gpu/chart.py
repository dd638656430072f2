"""Small charts as SVG, for pages that may be light or dark."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass, field

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BELOW = 58, 210, 14, 44
STRONG = ("#3b78d8", "#7a4fd0")  # of the series that a picture is about
COLOURS = ("#8a93a0", "#d98c21", "#c0392b", "#b0528f", "#2b8a66", "#5a7d2a")
TEXT = 'font-family="system-ui,sans-serif" font-size="12" fill="#7d8590"'


@dataclass
class Series:
    name: str
    points: list[tuple[float, float]]
    line: bool = False
    marks: bool = True
    strong: bool = False
    labels: list[str] = field(default_factory=list)  # of the points, shown when the mouse rests on one


def chart(title: str, x_label: str, y_label: str, series: list[Series]) -> str:
    points = [point for one in series for point in one.points]
    if not points:
        raise ValueError(f"{title}: there is nothing to draw")
    x_ticks = ticks(0.0 if min(p[0] for p in points) < 0.3 * max(p[0] for p in points) else min(p[0] for p in points),
                    max(p[0] for p in points))
    y_ticks = ticks(min(p[1] for p in points), max(p[1] for p in points))

    def x(value: float) -> float:
        return LEFT + (value - x_ticks[0]) / (x_ticks[-1] - x_ticks[0]) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (y_ticks[-1] - value) / (y_ticks[-1] - y_ticks[0]) * (HEIGHT - TOP - BELOW)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
             f'aria-label="{html.escape(title)}">']
    for value in y_ticks:
        parts.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#7d8590" opacity="0.2"/>'
                     f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end" {TEXT}>{value:g}</text>')
    for value in x_ticks:
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BELOW + 18}" text-anchor="middle" {TEXT}>{value:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle" {TEXT}>{html.escape(x_label)}</text>'
                 f'<text transform="translate(14 {(TOP + HEIGHT - BELOW) / 2}) rotate(-90)" text-anchor="middle" {TEXT}>'
                 f"{html.escape(y_label)}</text>")
    used = {True: 0, False: 0}
    for i, one in enumerate(series):
        colours = STRONG if one.strong else COLOURS
        parts.append(_drawn(one, colours[used[one.strong] % len(colours)], x, y, TOP + 10 + 20 * i))
        used[one.strong] += 1
    return "\n".join([*parts, "</svg>", ""])


def _drawn(one: Series, colour: str, x: Callable[[float], float], y: Callable[[float], float],
           height: int) -> str:
    placed = [(x(a), y(b)) for a, b in one.points]
    text = f'<circle cx="{WIDTH - RIGHT + 16}" cy="{height}" r="4" fill="{colour}"/>' \
           f'<text x="{WIDTH - RIGHT + 26}" y="{height + 4}" {TEXT}>{html.escape(one.name)}</text>'
    if one.line:
        text += f'<path d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in placed)}" fill="none" stroke="{colour}" ' \
                f'stroke-width="{3 if one.strong else 1.5}"/>'
    for i, (a, b) in enumerate(placed if one.marks else []):
        label = f"<title>{html.escape(one.labels[i])}</title>" if i < len(one.labels) else ""
        text += f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}">{label}</circle>'
    return text


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from below `low` to above `high`, four to nine of them."""
    spread = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(spread / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if spread / (step * factor) <= 7)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(i * step, 10) for i in range(first, max(last, first + 1) + 1)]
