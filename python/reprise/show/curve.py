"""The answer of reprise.curve: time against memory at all budgets from one run, with proven bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import _core

ROWS = 24


@dataclass(frozen=True)
class CurvePoint:
    """The peak and the time of one plan."""

    peak_bytes: int
    time_ns: int
    recompute_ns: int
    lower_bound_ns: int | None  # no plan with this peak, this order of backward ops and as many slices is faster
    slices: int = 1  # in which a chain of calls runs; 1: none does
    host_bytes: int = 0  # that the step stores in the host's memory at once


@dataclass
class TimeMemoryCurve:
    """The best plans found over all budgets, smallest peak first: each is faster than all before it.
    `str()` of it is a table; a notebook shows it as a picture; `plot()` draws it with matplotlib."""

    name: str
    points: list[CurvePoint]
    plain: CurvePoint  # without recomputation
    floor_bytes: int | None  # no plan has a lower peak
    stopped: bool  # the time ran out: these are the best plans so far
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[CurvePoint]:
        return iter(self.points)

    def at(self, budget: str | int) -> CurvePoint | None:
        """The fastest plan found within a budget, or None if there is none."""
        limit = _core.parse_bytes(budget) if isinstance(budget, str) else budget
        return max((p for p in self.points if p.peak_bytes <= limit), key=lambda p: p.peak_bytes, default=None)

    def joined(self, other: TimeMemoryCurve) -> TimeMemoryCurve:
        """The best of the plans of both, of which the other is for another form of the same step."""
        points: list[CurvePoint] = []
        for point in sorted((*self.points, *other.points), key=lambda p: (p.peak_bytes, p.time_ns)):
            if not points or point.time_ns < points[-1].time_ns:
                points.append(point)
        floors = [floor for floor in (self.floor_bytes, other.floor_bytes) if floor is not None]
        return TimeMemoryCurve(self.name, points, self.plain, min(floors) if len(floors) == 2 else None,
                               self.stopped or other.stopped, list(dict.fromkeys([*self.notes, *other.notes])))

    def overhead(self, time_ns: int) -> float:
        """How much longer this time is than that of the step without recomputation, as a share of the latter."""
        return time_ns / self.plain.time_ns - 1 if self.plain.time_ns else 0.0

    def shown(self) -> list[CurvePoint]:
        """About ROWS points, spread evenly over memory, including the first and the last."""
        if len(self.points) <= ROWS:
            return self.points
        low, high = self.points[0].peak_bytes, self.points[-1].peak_bytes
        chosen: list[CurvePoint] = []
        for point in self.points:
            if point.peak_bytes >= low + len(chosen) * (high - low) / (ROWS - 1) or point is self.points[-1]:
                chosen.append(point)
        return chosen

    def __str__(self) -> str:
        lines = [self.name, f"  {'budget':>12}{'time':>12}{'more':>10}{'at least':>10}"]
        for p in self.shown():
            bound = "" if p.lower_bound_ns is None else f"{100 * max(0.0, self.overhead(p.lower_bound_ns)):.1f} %"
            lines.append(f"  {_core.format_bytes(p.peak_bytes):>12}{p.time_ns / 1e6:>9.1f} ms"
                         f"{100 * self.overhead(p.time_ns):>8.1f} %{bound:>10}"
                         + (f"   in {p.slices} slices" if p.slices > 1 else "")
                         + (f"   {_core.format_bytes(p.host_bytes)} in the host's memory" if p.host_bytes > 0 else ""))
        if self.floor_bytes:
            lines.append(f"  no plan below {_core.format_bytes(self.floor_bytes)}")
        return "\n".join([*lines, *(f"  ({note})" for note in self.notes)])

    def _repr_html_(self) -> str:
        return _svg(self)

    def plot(self, axes: Any = None) -> Any:
        """Draws the curve with matplotlib, which must be installed, and returns the axes."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("curve.plot() draws with matplotlib, which is not installed: pip install matplotlib, or "
                              "show the curve in a notebook, or print it") from error
        axes = axes or pyplot.subplots()[1]
        gib = [p.peak_bytes / 2**30 for p in self.points]
        axes.step(gib, [100 * self.overhead(p.time_ns) for p in self.points], where="post", label="best found")
        bounded = [(p.peak_bytes / 2**30, 100 * max(0.0, self.overhead(p.lower_bound_ns)))
                   for p in self.points if p.lower_bound_ns is not None]
        if bounded:
            axes.step(*zip(*bounded, strict=True), where="post", linestyle=":", label="proven bound")
        axes.plot([self.plain.peak_bytes / 2**30], [0], "o", color="gray", label="plain")
        axes.set(xlabel="peak memory, GiB", ylabel="more time, %", title=self.name)
        axes.legend()
        return axes


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between the two, at most nine."""
    rough = max(high - low, 1e-9) / 8
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= rough * 0.999)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _svg(curve: TimeMemoryCurve) -> str:
    """A picture for a notebook, in the notebook's own colours."""
    width, height, left, below = 640, 280, 76, 44
    low = (curve.floor_bytes or curve.points[0].peak_bytes) * 0.97 if curve.points else 0
    high = max(1, *(p.peak_bytes for p in [*curve.points, curve.plain])) * 1.03
    most = min(max([0.05, *(curve.overhead(p.time_ns) for p in curve.points)]), 1.5) * 1.05
    unit, unit_name = next(u for u in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")) if high >= u[0])

    def x(peak: float) -> float:
        return left + (peak - low) / max(high - low, 1) * (width - left - 10)

    def y(share: float) -> float:
        return (height - below) * (1 - max(0.0, share) / most)

    def stairs(pairs: list[tuple[int, float]]) -> str:
        path = "".join(f"{'M' if i == 0 else 'H'}{x(peak):.1f}" + (f" {y(share):.1f}" if i == 0 else f"V{y(share):.1f}")
                       for i, (peak, share) in enumerate(pairs))
        return f"{path}H{width - 10}" if path else ""

    text = 'font-family="system-ui,sans-serif" font-size="12" fill="currentColor" opacity="0.75"'
    ticks = "".join(
        f'<path d="M{left} {y(n / 100):.1f}H{width - 10}" stroke="currentColor" opacity="0.12"/>'
        f'<text x="{left - 6}" y="{y(n / 100) + 4:.1f}" text-anchor="end" {text}>+{n:g} %</text>'
        for n in _ticks(0, 100 * most))
    sizes = "".join(
        f'<text x="{x(n * unit):.1f}" y="{height - below + 18}" text-anchor="middle" {text}>{n:g}</text>'
        for n in _ticks(low / unit, (high - 0.02 * (high - low)) / unit))
    titles = (f'<text x="{(left + width - 10) / 2:.0f}" y="{height - 6}" text-anchor="middle" {text}>peak memory, '
              f'{unit_name}</text><text transform="translate(14 {(height - below) / 2:.0f}) rotate(-90)" '
              f'text-anchor="middle" {text}>more time</text>')
    bounded = [(p.peak_bytes, curve.overhead(p.lower_bound_ns)) for p in curve.points if p.lower_bound_ns is not None]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -6 {width} {height + 6}" '
            f'style="max-width:{width}px;overflow:hidden" role="img" aria-label="Time against memory">'
            f'{ticks}{sizes}{titles}<path d="{stairs(bounded)}" fill="none" stroke="#2b8a66" stroke-dasharray="2 3" '
            f'stroke-width="1.5"/>'
            f'<path d="{stairs([(p.peak_bytes, curve.overhead(p.time_ns)) for p in curve.points])}" fill="none" '
            f'stroke="#3b78d8" stroke-width="2"/>'
            f'<circle cx="{x(curve.plain.peak_bytes):.1f}" cy="{y(0):.1f}" r="4" fill="#8a93a0"/>'
            f'<text x="{x(curve.plain.peak_bytes) - 8:.1f}" y="{y(0) - 8:.1f}" text-anchor="end" {text}>plain</text>'
            "</svg>")
