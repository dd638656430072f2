"""The answer of reprise.explain for a model whose regions are planned one by one."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core, planning


@dataclass
class Part:
    """A region in the latest step, with bytes above those of its inputs."""

    name: str
    kept_bytes: int  # from forward to backward
    forward_bytes: int  # at the highest instant of forward
    backward_bytes: int  # at the highest instant of backward
    time_ns: int
    recompute_ns: int


@dataclass
class Division:
    """How the regions of a model share the budget. `str()` of it is a table; the numbers are in the fields."""

    model: str
    budget_bytes: int | None
    peak_bytes: int
    measured_peak_bytes: int
    plain_peak_bytes: int  # of the same step without recomputation
    start_bytes: int  # allocated when the first region was called
    parts: list[Part]

    @property
    def time_ns(self) -> int:
        return sum(part.time_ns for part in self.parts)

    @property
    def recompute_ns(self) -> int:
        return sum(part.recompute_ns for part in self.parts)

    def __str__(self) -> str:
        size = _core.format_bytes
        facts = [
            ("budget", "none" if self.budget_bytes is None else size(self.budget_bytes)),
            ("peak, predicted", f"{size(self.peak_bytes)} ({self.peak_bytes} bytes)"),
            ("peak, measured", f"{size(self.measured_peak_bytes)} ({self.measured_peak_bytes} bytes)"),
            ("without recomputation", size(self.plain_peak_bytes)),
            ("before the first region", size(self.start_bytes)),
            ("kept by regions", size(sum(part.kept_bytes for part in self.parts))),
            ("recomputation", f"{self.recompute_ns / 1e6:.2f} ms, "
             f"{planning.recomputation_percent(self.recompute_ns, self.time_ns):.1f} % of the regions' time"),
        ]
        lines = [self.model, *(f"  {name:<24}{value}" for name, value in facts), ""]
        width = max(len(name) for name in ("region", *(part.name for part in self.parts)))
        lines.append(f"  {'region':<{width}}  {'keeps':>10}  {'forward':>10}  {'backward':>10}  {'recomputes':>10}")
        for part in self.parts:
            percent = planning.recomputation_percent(part.recompute_ns, part.time_ns)
            lines.append(f"  {part.name:<{width}}  {size(part.kept_bytes):>10}  {size(part.forward_bytes):>10}  "
                         f"{size(part.backward_bytes):>10}  {percent:>8.1f} %")
        return "\n".join(lines)
