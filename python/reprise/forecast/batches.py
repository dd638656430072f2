"""One training step at any batch size, from captures at a few.

The sizes of a step's values are lines over the batch size, and so is the text of its calls: at
batch 8 and 16 a call reads Float[8 64 ..] and Float[16 64 ..]. Two captures give the lines; the
graph at any other batch size is read off them. The same lines tell which calls measured in the
past are this call at another batch size: their times and workspaces give the costs at this one.

A step may have other operators at other sizes: attention at batch 1, batch norm where a tensor has
more than 2^31 numbers. Lines go through captures of one form alone; a size that was not captured has
the form of the nearest that was, batch 1 aside.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import _core
from ..errors import RepriseError
from ..show.preflight import Counts
from ..trace.dry_run import DryStep
from .known_calls import KnownCalls

ADDS = re.compile(r"add(_\d+)?")  # and not addmm, nor addcmul


@dataclass
class Sized:
    """The step at one batch size."""

    batch: int
    graph: dict[str, Any]  # as graph JSON
    outside_bytes: int
    signatures: dict[int, str]  # of calls, by op
    estimates: dict[int, int]  # ns by the roofline, by op
    output_bytes: int  # that get gradients
    seeds: list[int]  # values: these gradients
    absent: list[int]  # of these, those a compiled model does without where it returns its loss
    form: str  # digest of what is the same wherever the step has the same operators

    @staticmethod
    def of(batch: int, step: DryStep) -> Sized:
        captured, program = step.step.captured, step.step.captured.program
        program.set_value_bytes(captured.caller_value, 4096)  # as a compiled model plans its first step
        graph = json.loads(_core.Graph.from_capsule(program.graph()).format())
        calls = {op: program.signature(op) for op in range(program.num_ops) if program.is_call(op)}
        return Sized(batch, graph, step.outside_bytes, calls, dict(captured.estimates),
                     captured.output_bytes(captured.absent_seeds()), list(captured.seed_values),
                     [captured.seed_values[i] for i in sorted(captured.absent_seeds())], _form(graph))


def _form(graph: dict[str, Any]) -> str:
    ops = [(op["name"], op.get("inputs"), op.get("outputs")) for op in graph["ops"]]
    return hashlib.sha256(repr((ops, len(graph["values"]["bytes"]))).encode()).hexdigest()


@dataclass(frozen=True)
class Line:
    """Through two points. One point: the same everywhere."""

    x1: int
    y1: int
    x2: int
    y2: int

    def at(self, x: int) -> int:
        if self.x1 == self.x2:
            return self.y1
        return round(self.y1 + (self.y2 - self.y1) * (x - self.x1) / (self.x2 - self.x1))


@dataclass
class StepFamily:
    """The step at any batch size."""

    capture: Callable[[int], DryStep]
    known: dict[str, list[Any]]  # calls measured so far: signature -> time, workspace, ...
    captured: dict[int, Sized] = field(default_factory=dict)

    def has(self, batch: int) -> bool:
        return batch in self.captured

    def add(self, batch: int) -> None:
        """Captures it there. Where the step has a form that is new, at another size, too: for a line."""
        if self.has(batch):
            return
        known = {sized.form for sized in self.captured.values()}
        self.captured[batch] = made = Sized.of(batch, self.capture(batch))
        if batch == 1 or not known or made.form in known:
            return
        near = max(4, batch // 64)  # operators of later layers change at sizes not far above
        for other in (batch + near, max(2, batch - near)):
            if not self.has(other):
                self.captured[other] = Sized.of(other, self.capture(other))
            if self.captured[other].form == made.form:
                return
        del self.captured[batch]
        raise RepriseError(
            f"the step has other operators at batch {batch} than at {batch + near}, at {batch - near} and at all that were "
            "looked at before, so none can be read off another; ask about one batch size at a time with largest=False")

    def at(self, batch: int, *, eager: bool = False,
           roofline_times: bool = False) -> tuple[_core.Graph, int, Counts]:
        """The graph, what lies beside it, and how its costs are known.

        eager: as plain PyTorch runs it. Where the model returns its loss, and other outputs beside it, there are no
        gradients of those; a compiled model may need zeros for some.
        roofline_times: instead of measured ones, which are noisy.
        """
        alike = self._alike(batch)
        a, b = _nearest(alike, batch)

        def line(y1: int, y2: int) -> int:
            return Line(a.batch, y1, b.batch, y2).at(batch)

        counts = Counts()
        graph = {**a.graph, "values": dict(a.graph["values"]), "ops": [dict(op) for op in a.graph["ops"]]}
        graph["values"]["bytes"] = [max(0, line(y1, y2)) for y1, y2 in zip(
            a.graph["values"]["bytes"], b.graph["values"]["bytes"])]
        own_loss = eager and min((graph["values"]["bytes"][seed] for seed in a.seeds), default=0) <= 8 < max(
            graph["values"]["bytes"][seed] for seed in a.seeds)
        for seed in a.seeds if own_loss else a.absent:
            graph["values"]["bytes"][seed] = 0
        for op, entry in enumerate(graph["ops"]):
            if entry.get("phase") == "caller" and own_loss:
                entry["workspace_bytes"] = 0
            elif entry.get("phase") == "caller":
                outputs = line(a.output_bytes, b.output_bytes)
                entry["workspace_bytes"] = 2 * outputs if outputs > 1024 else 0  # as a compiled model's first step
            elif op in a.signatures:
                entry["time_ns"], entry["workspace_bytes"] = self._cost(op, batch, alike, counts)
                if roofline_times:
                    entry["time_ns"] = _estimate(op, batch, alike)
        if eager:
            _make_eager(graph, set(a.seeds) if own_loss else set())
        graph = _core.Graph.parse(json.dumps(graph), source=f"the step at batch {batch}")
        return graph, line(a.outside_bytes, b.outside_bytes), counts

    def _alike(self, batch: int) -> list[Sized]:
        """Captures with the operators that the step has at this batch size, by size. Ops of others are other ops."""
        every = list(self.captured.values())
        # A line needs two.
        lines = [sized for sized in every if sized.batch > 1 and sum(sized.form == other.form for other in every) > 1]
        there = self.captured.get(batch) or min(
            lines or [sized for sized in every if sized.batch > 1] or every, key=lambda sized: abs(sized.batch - batch))
        return sorted((sized for sized in every if sized.form == there.form), key=lambda sized: sized.batch)

    def _cost(self, op: int, batch: int, alike: list[Sized], counts: Counts) -> tuple[int, int]:
        if self.has(batch) and (own := self.known.get(self.captured[batch].signatures[op])):  # also where no line leads to it
            counts.measured += 1
            return own[0], own[1]
        first, last = alike[0], alike[-1]
        call, again = first.signatures[op], last.signatures[op]
        if call == again:  # it does not see the batch, or there is one capture alone
            points = {batch: (known[0], known[1])} if (known := self.known.get(call)) else {}
        else:
            points = self._calls.at_any_batch(first.batch, call, last.batch, again)
        if batch in points:
            counts.measured += 1
            return points[batch]
        if not points:
            counts.estimated += 1
            return _estimate(op, batch, alike), 0
        counts.scaled += 1
        # Workspaces are exact, and a line goes through two of them. Times are not: a line through two that are close
        # together may point anywhere, so the nearest is scaled as the roofline is.
        near, *others = sorted(points, key=lambda size: abs(size - batch))
        time_ns, workspace = points[near]
        time_ns = round(time_ns * max(1, _estimate(op, batch, alike)) / max(1, _estimate(op, near, alike)))
        if not others:
            return time_ns, round(workspace * batch / near)
        return time_ns, max(0, Line(near, workspace, others[0], points[others[0]][1]).at(batch))

    @functools.cached_property
    def _calls(self) -> KnownCalls:
        return KnownCalls(self.known)  # sizes that were captured and measured do without


def _nearest(alike: list[Sized], batch: int) -> tuple[Sized, Sized]:
    """Two that a line goes through; the same one twice where there is no other."""
    by_distance = sorted(alike, key=lambda sized: abs(sized.batch - batch))
    return by_distance[0], by_distance[min(1, len(by_distance) - 1)]


def _estimate(op: int, batch: int, alike: list[Sized]) -> int:
    """By the roofline."""
    a, b = _nearest(alike, batch)
    return max(0, Line(a.batch, a.estimates.get(op, 0), b.batch, b.estimates.get(op, 0)).at(batch))


def _make_eager(graph: dict[str, Any], seeds: set[int]) -> None:
    """A plan's step becomes that of plain PyTorch. A plan writes results over operands that nobody reads again; eager does so
    with buffers and where it adds gradients up. Whether the model's own code does is not known, and taken for no, which
    may predict too much in the forward pass. Of `seeds` alone eager adds nothing up: they are views of the loss's.
    """
    sizes = graph["values"]["bytes"]
    in_place: set[int] = set()
    for op in graph["ops"]:
        adds = op.get("phase") == "backward" and ADDS.fullmatch(op["name"]) is not None
        if adds and seeds.issuperset(op["inputs"]):
            for value in op["outputs"]:
                sizes[value] = 0
        if adds or "once" in op:
            in_place.update(op.get("outputs", ()))
    graph["values"]["overwrites"] = [[new, old] for new, old in graph["values"]["overwrites"]
                                     if new in in_place and sizes[new] == sizes[old]]
    graph["ops"] = _whole_convolutions(graph["ops"])


def _whole_convolutions(ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Eager runs as one call what lowering makes two calls of: the second reads what the first does, but for the input."""
    whole: list[dict[str, Any]] = []
    for op in ops:
        pair = [*whole[-1:], op]
        if len(pair) == 2 and all(part["name"].startswith("convolution_backward") for part in pair) and set(
                op["inputs"]) < set(pair[0]["inputs"]):
            whole[-1] = pair[0] | {"outputs": [*pair[0]["outputs"], *op["outputs"]],
                                   "time_ns": sum(part.get("time_ns", 0) for part in pair),
                                   "workspace_bytes": max(part.get("workspace_bytes", 0) for part in pair)}
        else:
            whole.append(op)
    return whole


