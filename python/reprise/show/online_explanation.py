"""The answer of reprise.explain for a model whose steps are not captured."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core, planning


@dataclass
class OnlineExplanation:
    """What the online mode has done since it began. `str()` of it is a table; the numbers are in the fields."""

    model: str
    budget_bytes: int
    peak_bytes: int  # measured
    plain_peak_bytes: int  # how high the peak would have been at the least, had nothing been taken away
    calls: int
    call_ns: int
    evictions: int
    repeated_calls: int
    recompute_ns: int
    steps: int
    followed_steps: int
    departures: int
    scripts: int
    planning_seconds: float

    def __str__(self) -> str:
        size = _core.format_bytes
        percent = planning.recomputation_percent(self.recompute_ns, self.call_ns + self.recompute_ns)
        facts = [
            ("mode", "online: calls run as they come, and results are taken away when memory is short"),
            ("budget", size(self.budget_bytes)),
            ("peak, measured", f"{size(self.peak_bytes)} ({self.peak_bytes} bytes)"),
            ("without recomputation", f"at least {size(self.plain_peak_bytes)}"),
            ("calls", f"{self.calls} in {self.steps} steps"),
            ("taken away", f"{self.evictions} results"),
            ("recomputation", f"{self.repeated_calls} calls, {self.recompute_ns / 1e6:.2f} ms, {percent:.1f} % of all steps"),
            ("plans", f"{self.scripts}, made in {self.planning_seconds:.1f} s; steps that followed one: {self.followed_steps}, "
             f"that departed from one: {self.departures}"),
        ]
        return "\n".join([self.model, *(f"  {name:<24}{value}" for name, value in facts)])
