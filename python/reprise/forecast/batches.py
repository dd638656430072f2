"""One training step at any batch size, from captures at a few.

The sizes of a step's values are lines over the batch size, and so are the numbers in the text of its
calls: at batch 8 and 16 a call reads Float[8 64 ..] and Float[16 64 ..]. Two captures give the lines,
and the graph at any other batch size is read off them. The same lines tell which calls measured in
the past are this call at another batch size; their times and workspaces give the costs at this one.

A step may have other operators at other sizes: attention at batch 1, or batch norm if a tensor has
more than 2^31 numbers. A line goes only through captures with the same operators (of one form). A size
that was not captured has the form of the nearest one that was, leaving batch 1 aside.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from .. import _core
from ..errors import RepriseError
from ..native import _torch
from ..show.preflight import Counts
from ..trace.dry_run import DryStep
from .known_calls import KnownCalls
from .network import Collectives, Network

Form = tuple[_core.Graph, _core.Costs]


@dataclass
class Sized:
    """The step at one batch size."""

    batch: int
    graph: _core.Graph
    bytes: list[int]  # of values
    first: _core.Costs  # without times; the caller's op as a compiled model plans it for its first step
    outside_bytes: int
    signatures: dict[int, str]  # of calls, by op
    estimates: list[int]  # ns by the roofline, by op
    seeds: list[int]  # values: gradients of outputs
    form: str  # a digest that is the same at all sizes where the step has the same operators
    collectives: Collectives = field(default_factory=dict)  # whose times are those of a network

    @staticmethod
    def of(batch: int, step: DryStep, device_type: str, network: Network | None = None) -> Sized:
        program = step.step.captured.program
        sized = Sized.of_program(batch, program, step.outside_bytes, device_type, program.signature)
        if network is not None:
            sized.take(network.collectives(program, device_type), is_there=step.device.type == device_type)
        return sized

    def take(self, collectives: Collectives, is_there: bool) -> None:
        """is_there: the step was captured on the device that it is for; on another one, gloo has no copies of its own."""
        self.collectives = collectives
        workspaces, sizes = self.first.workspace_bytes, self.first.value_bytes
        for op, (_, time_ns) in collectives.items():
            del self.signatures[op]
            self.estimates[op] = time_ns
            if is_there:
                continue
            workspaces[op] = 0
            if self.graph.stream(op):
                for scratch in self.graph.outputs(op)[1:]:
                    self.bytes[scratch] = sizes[scratch] = 0
        self.first = _core.Costs(self.first.time_ns, workspaces, sizes)

    @staticmethod
    def of_program(batch: int, program: _torch.Program, outside_bytes: int, device_type: str,
                   signature: Callable[[int], str]) -> Sized:
        bare, first = (_core.Costs.from_capsule(costs(program)) for costs in (_torch.bare_costs, _torch.first_costs))
        graph = _core.Graph.from_capsule(program.graph())
        calls = {op: signature(op) for op in range(program.num_ops) if program.is_call(op)}
        return Sized(batch, graph, bare.value_bytes, first, outside_bytes, calls,
                     _torch.roofline_ns(program, device_type), program.seed_values, _form(graph))


def _form(graph: _core.Graph) -> str:
    ops = [(graph.op_name(op), graph.inputs(op), graph.outputs(op)) for op in range(graph.num_ops)]
    return hashlib.sha256(repr((ops, graph.num_values)).encode()).hexdigest()


@dataclass(frozen=True)
class Line:
    """A line through two points. If both are the same point, its value holds everywhere."""

    x1: int
    y1: int
    x2: int
    y2: int

    def at(self, x: int) -> int:
        if self.x1 == self.x2:
            return self.y1
        return round(self.y1 + (self.y2 - self.y1) * (x - self.x1) / (self.x2 - self.x1))


@dataclass
class BatchFamily:
    """The step at any batch size."""

    capture: Callable[[int], DryStep]
    device_type: str  # the kind of device that the roofline is for
    known: dict[str, tuple[int, int]]  # calls measured so far: signature -> time and workspace
    captured: dict[int, Sized] = field(default_factory=dict)
    is_quick: Callable[[], bool] = lambda: False  # a capture takes so little that every size which is asked about has one
    network: Network | None = None

    def learn(self, known: dict[str, tuple[int, int]]) -> None:
        """Takes over what has been measured in the meantime."""
        self.known = known
        self.__dict__.pop("_calls", None)

    def has(self, batch: int) -> bool:
        return batch in self.captured

    def has_line(self) -> bool:
        """Whether two captures have the same form, so that it is known at other sizes."""
        forms = [sized.form for sized in self.captured.values() if sized.batch > 1]
        return len(set(forms)) < len(forms)

    def add(self, batch: int) -> None:
        """Captures the step at this size and, if its form there is new, at another size too, which a line needs."""
        if self.has(batch):
            return
        known = {sized.form for sized in self.captured.values()}
        self.captured[batch] = made = self._sized(batch)
        if batch == 1 or not known or made.form in known or self.is_quick():
            return
        near = max(4, batch // 64)  # operators of later layers change at sizes not far above
        for other in (batch + near, max(2, batch - near)):
            if not self.has(other):
                self.captured[other] = self._sized(other)
            if self.captured[other].form == made.form:
                return
        del self.captured[batch]
        raise RepriseError(
            f"the step at batch {batch} has other operators than at {batch + near}, at {batch - near} and at all sizes tried "
            "before, so one cannot be derived from another; ask about one batch size at a time with largest=False")

    def _sized(self, batch: int) -> Sized:
        return Sized.of(batch, self.capture(batch), self.device_type, self.network)

    def at(self, batch: int, *, eager: bool = False,
           roofline_times: bool = False) -> tuple[_core.Graph, _core.Costs, int, Counts]:
        """The graph and its costs, the bytes beside it, and how its costs are known.

        eager: the step as plain PyTorch runs it. If the model returns its loss and other outputs, those have no
        gradients; a compiled model may need zeros for some.
        roofline_times: use times of the roofline instead of measured ones, which are noisy.
        """
        if self.is_quick():
            self.add(batch)
        alike = self._alike(batch)
        a, b = _nearest(alike, batch)

        def line(y1: int, y2: int) -> int:
            return max(0, Line(a.batch, y1, b.batch, y2).at(batch))

        counts = Counts()
        sizes = [line(y1, y2) for y1, y2 in zip(a.first.value_bytes, b.first.value_bytes, strict=True)]
        workspaces = [line(y1, y2) for y1, y2 in zip(a.first.workspace_bytes, b.first.workspace_bytes, strict=True)]
        times = [0] * len(workspaces)
        for op in a.signatures:
            times[op], workspaces[op] = self._cost(op, batch, alike, counts)
            if roofline_times:
                times[op] = _estimate(op, batch, alike)
        for op in a.collectives:
            times[op] = _estimate(op, batch, alike)
        outside = line(a.outside_bytes, b.outside_bytes)
        if not eager:
            return a.graph, _core.Costs(times, workspaces, sizes), outside, counts
        seeds = [line(a.bytes[seed], b.bytes[seed]) for seed in a.seeds]
        own_loss = min(seeds, default=0) <= 8 < max(seeds, default=0)
        if own_loss and a.graph.caller_op is not None:
            workspaces[a.graph.caller_op] = 0
            for seed in a.seeds:
                sizes[seed] = 0
        graph, costs = _eager(a.graph, times, workspaces, sizes, a.seeds if own_loss else [])
        return graph, costs, outside, counts

    def _alike(self, batch: int) -> list[Sized]:
        """The captures, by size, that have the operators the step has at this batch size; only their ops correspond."""
        every = list(self.captured.values())
        # A line needs two captures.
        lines = [sized for sized in every if sized.batch > 1 and sum(sized.form == other.form for other in every) > 1]
        there = self.captured.get(batch) or min(
            lines or [sized for sized in every if sized.batch > 1] or every, key=lambda sized: abs(sized.batch - batch))
        return sorted((sized for sized in every if sized.form == there.form), key=lambda sized: sized.batch)

    def _cost(self, op: int, batch: int, alike: list[Sized], counts: Counts) -> tuple[int, int]:
        if self.has(batch) and (own := self.known.get(self.captured[batch].signatures[op])):  # even if no line leads to it
            counts.measured += 1
            return own[0], own[1]
        first, last = alike[0], alike[-1]
        call, again = first.signatures[op], last.signatures[op]
        if call == again:  # the call does not depend on the batch, or there is only one capture
            points = {batch: (known[0], known[1])} if (known := self.known.get(call)) else {}
        else:
            text = functools.partial(self._signature, op, first.form) if self.is_quick() else None
            points = self._calls.at_any_batch(first.batch, call, last.batch, again, text)
        if batch in points:
            counts.measured += 1
            return points[batch]
        if not points:
            counts.estimated += 1
            return _estimate(op, batch, alike), 0
        counts.scaled += 1
        # Workspaces are exact, and a line over the bytes of operands and results goes through two of them. Times are not
        # exact: a line through two that are close together may point anywhere, so the nearest is scaled like the roofline's.
        near, *others = sorted(points, key=lambda size: abs(size - batch))
        time_ns, workspace = points[near]
        time_ns = round(time_ns * max(1, _estimate(op, batch, alike)) / max(1, _estimate(op, near, alike)))
        here, there = self._touched(op, batch, alike), self._touched(op, near, alike)
        if not others:
            return time_ns, round(workspace * here / max(1, there))
        other = self._touched(op, others[0], alike)
        return time_ns, max(0, Line(there, workspace, other, points[others[0]][1]).at(here))

    def _touched(self, op: int, batch: int, alike: list[Sized]) -> int:
        """The bytes of an op's operands and results."""
        a, b = _nearest(alike, batch)
        return sum(Line(a.batch, a.bytes[value], b.batch, b.bytes[value]).at(batch)
                   for value in {*a.graph.inputs(op), *a.graph.outputs(op)})

    def _signature(self, op: int, form: str, batch: int) -> str | None:
        """The text of a call at a size that is captured for it; None if the step has other calls there."""
        self.add(batch)
        return self.captured[batch].signatures[op] if self.captured[batch].form == form else None

    @functools.cached_property
    def _calls(self) -> KnownCalls:
        return KnownCalls(self.known)  # not needed at sizes that were captured and measured


def _nearest(alike: list[Sized], batch: int) -> tuple[Sized, Sized]:
    """Two captures for a line to go through; the same one twice if there is no other."""
    by_distance = sorted(alike, key=lambda sized: abs(sized.batch - batch))
    return by_distance[0], by_distance[min(1, len(by_distance) - 1)]


def _estimate(op: int, batch: int, alike: list[Sized]) -> int:
    """The time of an op by the roofline."""
    a, b = _nearest(alike, batch)
    return max(0, Line(a.batch, a.estimates[op], b.batch, b.estimates[op]).at(batch))


def _eager(graph: _core.Graph, times: list[int], workspaces: list[int], sizes: list[int],
           lone_seeds: list[int]) -> tuple[_core.Graph, _core.Costs]:
    """The step as plain PyTorch runs it. Eager does not add up gradients that come from `lone_seeds` alone."""
    capsule, parts, views = _torch.eager_graph(graph.capsule(), lone_seeds)
    for value in views:
        sizes[value] = 0
    return _core.Graph.from_capsule(capsule), _core.Costs(
        [sum(times[op] for op in ops) for ops in parts], [max(workspaces[op] for op in ops) for ops in parts], sizes)
