"""The answer of reprise.preflight: a table, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import _core


@dataclass
class Counts:
    """How the costs of calls are known."""

    measured: int = 0  # at this batch size
    scaled: int = 0  # at others
    estimated: int = 0  # by the roofline; the workspace is unknown and taken as 0


@dataclass
class Fit:
    """Training at one batch size, plain or planned."""

    batch: int
    peak_bytes: int  # everything on the device; for planned training that does not fit, the least found
    time_ns: int | None  # time of a step; None: it does not fit
    fits: bool
    slices: int = 1  # in which a chain of calls runs; 1: none does
    length: int | None = None  # of the inputs, where lengths were asked about
    host_bytes: int = 0  # that a step stores in the host's memory at once

    @property
    def samples_per_second(self) -> float | None:
        return None if not self.time_ns else 1e9 * self.batch / self.time_ns


@dataclass
class AtLength:
    """The largest batches with inputs of one length; None: not even batch size 1 fits."""

    length: int
    largest_plain: Fit | None
    largest_planned: Fit | None


@dataclass
class Lengths:
    """Which lengths and batches fit together."""

    rows: list[AtLength]
    longest_plain: Fit | None  # at the batch size asked for
    longest_planned: Fit | None
    notes: list[str] = field(default_factory=list)

    def lines(self, batch: int) -> list[str]:
        def batch_of(fit: Fit | None) -> str:
            return "none" if fit is None else str(fit.batch)

        table = [f"  {'length':<8}{'largest batch, plain':>22}{'planned':>10}"] if self.rows else []
        table += [f"  {row.length:<8}{batch_of(row.largest_plain):>22}{batch_of(row.largest_planned):>10}" for row in self.rows]
        plain, planned = ("none" if fit is None else str(fit.length) for fit in (self.longest_plain, self.longest_planned))
        return [*table, f"  Longest at batch {batch}: plain {plain}, planned {planned}."]


@dataclass
class Exchange:
    """What a process of many that hold a part of each parameter exchanges with the others in a step, as planned; where training
    does not fit, as without recomputation."""

    ranks: int
    bytes_per_s: int
    gathers: int  # of whole parameters, if each is gathered once
    gathers_again: int
    sent_bytes: int  # by each process
    time_ns: int  # of communication
    exposed_ns: int  # the part of it beside which nothing else runs
    smallest_budget_bytes: int  # with which training fits

    def lines(self) -> list[str]:
        size = _core.format_bytes
        return [f"  Each of {self.ranks} ranks sends {size(self.sent_bytes)} per step, which takes "
                f"{self.time_ns / 1e6:.1f} ms at {self.bytes_per_s / 1e9:g} GB/s; for {self.exposed_ns / 1e6:.1f} ms of them "
                "nothing runs beside.",
                f"  Gathers of whole parameters: {self.gathers}, and {self.gathers_again} again. Smallest budget: "
                f"{size(self.smallest_budget_bytes)}."]


@dataclass
class Preflight:
    """`str()` of it is a table; the numbers are in the fields."""

    model: str
    device: str
    budget_bytes: int
    plain: Fit  # at the batch size asked for
    planned: Fit
    largest_plain: Fit | None  # None: not even batch size 1 fits, or it was not asked for
    largest_planned: Fit | None
    counts: Counts
    notes: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    lengths: Lengths | None = None
    exchange: Exchange | None = None  # with other processes, where ranks were asked about
    host_budget_bytes: int = 0  # that steps may store in the host's memory

    @property
    def fits(self) -> bool:
        """Whether the model can be trained, with recomputation if necessary."""
        return self.planned.fits

    def __str__(self) -> str:
        size = _core.format_bytes
        where = self.device if self.exchange is None else f"one {self.device} of {self.exchange.ranks}"
        lines = [f"{self.model} on {where}, budget {size(self.budget_bytes)}", "",
                 f"  {'':<22}{'batch':>7}{'peak':>14}{'':>18}{'step':>12}{'samples/s':>12}"]
        rows = [("plain", self.plain), ("planned", self.planned), ("largest, plain", self.largest_plain),
                ("largest, planned", self.largest_planned)]
        for name, fit in rows:
            if fit is not None:
                room = self.budget_bytes - fit.peak_bytes
                verdict = f"{size(abs(room))} {'left' if room >= 0 else 'over'}"
                step = "" if fit.time_ns is None else f"{fit.time_ns / 1e6:.1f} ms"
                rate = "" if fit.samples_per_second is None else f"{fit.samples_per_second:.1f}"
                more = f"   in {fit.slices} slices" if fit.slices > 1 else ""
                more += f"   {size(fit.host_bytes)} in the host's memory" if fit.host_bytes > 0 else ""
                lines.append(f"  {name:<22}{fit.batch:>7}{size(fit.peak_bytes):>14}{verdict:>18}{step:>12}{rate:>12}{more}")
        if self.exchange is not None:
            lines += ["", *self.exchange.lines()]
        if self.lengths is not None:
            lines += ["", *self.lengths.lines(self.plain.batch)]
        notes = [*self.notes, *(self.lengths.notes if self.lengths is not None else [])]
        lines += ["", *self.advice, *(f"({note})" for note in notes)]
        return "\n".join(lines)


def advice_on(found: Preflight) -> list[str]:
    """What to do about it."""
    size = _core.format_bytes
    host = f', host_budget="{size(found.host_budget_bytes)}"' if found.host_budget_bytes > 0 else ""
    call = f'reprise.compile(model, budget="{size(found.budget_bytes)}"{host})'
    if found.exchange is not None:
        call = f"reprise.shard and {call}"
    if found.plain.fits:
        more = found.largest_planned
        lines = [f"It fits as it is, with {size(found.budget_bytes - found.plain.peak_bytes)} left."]
        if more is not None and more.batch > found.plain.batch:
            lines.append(f"With {call} batches up to {more.batch} fit.")
        return lines
    over = size(found.plain.peak_bytes - found.budget_bytes)
    if found.planned.fits:
        assert found.planned.time_ns is not None and found.plain.time_ns is not None
        extra = 100 * (found.planned.time_ns / found.plain.time_ns - 1)
        return [f"It does not fit plain, by {over}. With {call} it does, for {extra:.1f} % more time."]
    lines = [f"It does not fit, plain by {over}, planned by "
             f"{size(found.planned.peak_bytes - found.budget_bytes)}.",
             f"Raise the budget to {size(found.planned.peak_bytes)} ({found.planned.peak_bytes} bytes)"]
    if found.largest_planned is not None:
        lines[-1] += f", or lower the batch to {found.largest_planned.batch}"
    lines[-1] += ", or train in a narrower type (torch.autocast)."
    return lines
