"""Will it fit? The question that reprise.preflight and reprise.curve ask of a model.

The step is captured on fake tensors at the batch size asked for and at another one; these give it at any
other size (batches.py). The costs of operators come from earlier measurements on this device, at any batch
size, or otherwise from a roofline, which does not know workspaces.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from .. import _core, planning
from ..native import _torch
from ..optimizer_state import optimizer_state_bytes
from ..progress import Progress
from ..show.preflight import Counts, Fit, Preflight, advice_on
from ..trace import dry_run
from ..trace.joint_graph import EAGER, FUSED
from .batches import BatchFamily, Form
from .captures import Captures, Sizes
from .forms import Forms
from .host_memory import HostMemory
from .known_layouts import AnyBatch
from .network import Network

PROFILES = ("known", "measure", "roofline")
_TOO_MUCH = 1 << 60  # bytes
_MULTIPLIES = re.compile(r"(add|b|baddb)?mm(_|$)")


@dataclass
class Question:
    """A model, its inputs, and the device it would be trained on."""

    model: nn.Module
    inputs: dry_run.Inputs
    budget_bytes: int
    reserve_bytes: int
    device: torch.device
    optimizer: torch.optim.Optimizer | None
    planner: str
    seconds: float
    profile: str
    batch_dim: int
    engine: str = EAGER
    slices: bool | str = True
    sizes: Sizes = field(default_factory=dict)  # of other dimensions, where they are not the inputs' own
    shared: Captures | None = None  # those of another question about the model
    network: Network | None = None  # to the other processes that hold a part of each parameter
    host: HostMemory | None = None  # in which steps may store values

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        if self.optimizer is not None:
            part = list if self.network is None else self.network.sharding.part
            self.reserve_bytes += optimizer_state_bytes(self.optimizer, self.device, part)
        self.capture_device = self.device
        here = self.device.type == "cpu" or (self.device.type == "cuda" and torch.cuda.is_available())
        if self.device.type == "cuda" and not here:
            self.capture_device = torch.device("cpu")
            self.notes.append("there is no CUDA here: the operators are the CPU's")
        if self.profile == "measure" and not here:
            raise ValueError(f"profile='measure': there is no {self.device} here; use 'known' or 'roofline'")
        if self.engine == FUSED and not here:
            raise ValueError(f"engine='fused': its kernels are generated on the device itself, and there is no {self.device} "
                             "here; use engine='eager'")
        self.known = here and self.profile != "roofline"
        self.captures = self.shared or Captures(self.model, self.inputs, self.device, self.capture_device, self.known,
                                                None if self.network is None else self.network.sharding)
        batch = self.captures.own_size(self.batch_dim)
        if batch is None:
            raise ValueError(f"inputs: no tensor has a dimension {self.batch_dim}, which would be the batch size")
        self.batch = batch
        self.family = BatchFamily(partial(self._capture, self.engine), self.device.type, {}, is_quick=self._is_quick,
                                 network=self.network)
        self.forms = Forms(self.family, self.slices if self.engine == EAGER else False, compare=self.profile == "measure")
        # Plain PyTorch runs eager's operators, whatever engine the planned step has.
        self.plain_family = self.family if self.engine == EAGER else BatchFamily(
            partial(self._capture, EAGER), self.device.type, {}, is_quick=self._is_quick, network=self.network)
        self.refresh()

    def answer(self, largest: bool) -> Preflight:
        self.look(largest)
        graph, costs, _, counts = self.family.at(self.batch)
        plain, (planned, plan) = self.plain(self.batch), self._planned(self.batch)
        best_plain, best_planned = self.largest() if largest else (None, None)
        if best_planned is not None:
            best_planned, _ = self._planned(best_planned.batch)
        if not self.forms.compare and any(fit is not None and fit.slices > 1 for fit in (planned, best_planned)):
            self.notes.append(f"slices ({self.forms.words}) were not compared with whole calls on this device, which must have "
                              "the same bits: profile='measure' compares them")
        result = Preflight(type(self.model).__name__, str(self.device), self.budget_bytes, plain, planned, best_plain,
                           best_planned, counts, self.notes_on(counts),
                           host_budget_bytes=0 if self.host is None else self.host.budget_bytes)
        if self.network is not None:
            least = min(planned.peak_bytes, self._least(self.batch)) if planned.fits else planned.peak_bytes
            result.exchange = self.network.exchange(graph, costs, self.family.captured[self.batch].collectives, plan, least)
        result.advice = advice_on(result)
        return result

    def look(self, largest: bool = True) -> None:
        """Captures the step at its own size and, if sizes are asked about that may be the largest, at another."""
        other = max(2, self.batch // 2) if self.batch > 3 else 2 * self.batch + 2
        for family in (self.family, self.plain_family):
            family.add(self.batch)
            if largest:
                family.add(other)
        self.refresh()

    def largest(self, most: int | None = None) -> tuple[Fit | None, Fit | None]:
        """The largest batch sizes that fit, plain and planned; none is above `most`."""
        return (self._largest(self.plain_family, lambda n: self.plain(n).peak_bytes, self.plain, most),
                self._largest(self.family, self._least, lambda n: self._feasible(n)[0], most))

    def step(self) -> tuple[_core.Graph, _core.Costs, int, Counts]:
        """The step as it was asked about, and the bytes beside it."""
        self.family.add(self.batch)
        self.refresh()
        graph, costs, outside, counts = self.family.at(self.batch)
        return graph, costs, outside + self._kept(graph) + self.reserve_bytes, counts

    def notes_on(self, counts: Counts) -> list[str]:
        if not counts.estimated:
            return self.notes
        calls = counts.estimated + counts.measured + counts.scaled
        return [*self.notes, f"{counts.estimated} of {calls} calls were never measured here: their times are a "
                "roofline's, and their workspaces are not in the peak"]

    # -- The step at a batch size.

    def _is_quick(self) -> bool:
        return self.captures.are_quick

    def _capture(self, engine: str, batch: int) -> dry_run.DryStep:
        step = self.captures.at({**self.sizes, self.batch_dim: batch}, engine)
        if self.profile == "measure":
            step.step.measure(AnyBatch)
        if engine == self.engine:
            self.forms.steps[batch] = step
        return step

    def refresh(self) -> None:
        """Takes over what has been measured in the meantime."""
        self.kept_bytes = 0
        if self.known:
            book = _torch.CostBook(self.device)
            self.kept_bytes = book.kept_bytes
            self.forms.learn(book.calls)
            self.plain_family.learn(book.calls)

    # -- Plain and planned.

    def _kept(self, graph: _core.Graph, threads: int = 1) -> int:
        """Memory that libraries keep on the device if the step multiplies matrices."""
        if not any(_MULTIPLIES.match(graph.op_name(op)) for op in range(graph.num_ops)):
            return 0
        return threads * self.kept_bytes

    def _room(self, outside: int) -> int:
        return self.budget_bytes - self.reserve_bytes - outside

    def plain(self, batch: int) -> Fit:
        graph, costs, outside, _ = self.plain_family.at(batch, eager=True)
        outside += self._kept(graph, threads=2)  # memory of the caller and of autograd
        found = _core.solve(graph, costs, planner="none").simulation
        return Fit(batch, found.peak_bytes + outside + self.reserve_bytes, found.time_ns,
                   found.peak_bytes <= self._room(outside))

    def _find(self, batch: int, room: int, roofline_times: bool) -> planning.Found:
        """The plan that a session would choose, of the step whole or in slices."""

        def form_of(key: planning.FormKey) -> Form | None:
            return self.form(key, batch, roofline_times)

        host_budget_bytes = 0 if self.host is None else self.host.budget_bytes
        return planning.find_in_forms(form_of, self.forms.use, self.forms.sliceable_bytes(batch), max(0, room), self.planner,
                                      self.seconds, in_full=not roofline_times, host_budget_bytes=host_budget_bytes)

    def form(self, key: planning.FormKey, batch: int, roofline_times: bool = False) -> Form | None:
        """The step in one form, with the way to the host's memory if there is one."""
        found = self.forms.at(key, batch, roofline_times=roofline_times)
        if found is None or self.host is None:
            return None if found is None else found[0]
        graph, costs = found[0]
        return graph, self.host.beside(costs)

    def _feasible(self, batch: int) -> tuple[Fit, _core.Plan | None]:
        """Whether there is a plan. How far a search for the least memory gets depends on times, so the search uses
        times that are free of noise."""
        graph, _, outside, _ = self.family.at(batch)
        outside += self._kept(graph)
        beside = outside + self.reserve_bytes
        found = self._find(batch, self._room(outside), roofline_times=True)
        if found.plan is None:
            return Fit(batch, found.smallest_budget_bytes + beside, None, False), None
        form = self.form(found.form, batch)
        assert form is not None  # it was found with other times
        simulation = _core.simulate(*form, found.plan)
        return Fit(batch, simulation.peak_bytes + beside, simulation.time_ns, True, found.slices,
                   host_bytes=simulation.host_peak_bytes), found.plan

    def _planned(self, batch: int) -> tuple[Fit, _core.Plan | None]:
        """The same, and the fastest plan."""
        feasible, plan = self._feasible(batch)
        graph, _, outside, _ = self.family.at(batch)
        outside += self._kept(graph)
        found = self._find(batch, self._room(outside), roofline_times=False)
        if found.simulation is None or (feasible.time_ns is not None and feasible.time_ns <= found.simulation.time_ns):
            return feasible, plan
        return Fit(batch, found.simulation.peak_bytes + outside + self.reserve_bytes, found.simulation.time_ns, True,
                   found.slices, host_bytes=found.simulation.host_peak_bytes), found.plan

    def _least(self, batch: int) -> int:
        """The least memory that planned training needs."""
        graph, _, outside, _ = self.family.at(batch)
        least = self._find(batch, 0, roofline_times=True).smallest_budget_bytes
        return least + outside + self._kept(graph) + self.reserve_bytes

    def _largest(self, family: BatchFamily, need: Callable[[int], int], fit: Callable[[int], Fit],
                 most: int | None) -> Fit | None:
        """The largest batch size that fits, checked by a capture at that size."""
        def need_below(batch: int) -> int:
            return need(batch) if most is None or batch <= most else _TOO_MUCH

        def fit_below(batch: int) -> Fit:
            return fit(batch) if most is None or batch <= most else Fit(batch, _TOO_MUCH, None, False)

        while True:
            batch = last_inside(need_below, self.budget_bytes, self.batch)
            found = last_fit(fit_below, batch)
            if found is None and not family.has(1):  # which may have other operators than larger ones
                family.add(1)
                self.refresh()
                continue
            if found is None or family.has(found.batch):
                return found
            family.add(found.batch)
            self.refresh()
            checked = fit(found.batch)
            if checked.fits and abs(checked.peak_bytes - found.peak_bytes) <= found.peak_bytes // 200:
                return checked


def last_inside(need: Callable[[int], int], limit: int, start: int) -> int:
    """The largest n with need(n) <= limit, to 0.4 %, or 0 if there is none. `need` is close to a line: the next n to
    try is where the line through the two nearest known points reaches the limit, or, if that has not helped (there
    may be jumps), the middle."""
    known: dict[int, int] = {}
    low, high, guess, width = 0, 0, start, 0
    with Progress("looking at batch") as progress:
        while True:
            progress(guess, high or guess)
            known[guess] = need(guess)
            low, high = (guess, high) if known[guess] <= limit else (low, guess)
            if high and high - low <= max(1, high // 256):
                return low
            guess = _crossing(known, limit) if len(known) > 1 else (2 * low or high // 2)
            if high and width and 2 * (high - low) > width:
                guess = (low + high) // 2
            width = high - low if high else 0
            guess = max(low + 1, min(guess, high - 1 if high else 8 * low))


def last_fit(fit: Callable[[int], Fit], near: int) -> Fit | None:
    """The largest batch size that fits, to 0.4 %, starting from a size that is known to be close."""
    low, high, reach = None, None, max(1, near // 64)
    guess = max(1, near)
    while True:
        found = fit(guess)
        low, high = (found, high) if found.fits else (low, found)
        if high is not None and high.batch - (low.batch if low else 0) <= max(1, high.batch // 256):
            return low
        if low is not None and high is not None:
            guess = (low.batch + high.batch) // 2
        else:
            guess = found.batch + reach if low else max(1, found.batch - reach)
            reach *= 2


def _crossing(known: dict[int, int], limit: int) -> int:
    (x1, y1), (x2, y2) = sorted(known.items(), key=lambda point: abs(point[1] - limit))[:2]
    return x1 + int((limit - y1) * (x2 - x1) / (y2 - y1)) if y1 != y2 else max(x1, x2) * 2
