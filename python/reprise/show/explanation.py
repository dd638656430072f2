"""The answer of reprise.explain: what a plan keeps and what it computes again, in the user's own names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .. import _core, planning
from ..native import _torch

ROWS = 40


@dataclass
class ModuleRow:
    """One of the user's modules: the bytes it keeps from forward to backward, and its recomputation."""

    name: str
    kept_bytes: int = 0
    recomputed_ops: int = 0  # runs after the first
    recompute_ns: int = 0
    time_ns: int = 0  # time of all first runs


@dataclass
class Explanation:
    """`str()` of it is a table; the numbers are in the fields."""

    model: str
    planner: str
    budget_bytes: int | None
    peak_bytes: int
    measured_peak_bytes: int | None
    plain_peak_bytes: int  # predicted, without recomputation
    outside_bytes: int  # on the device, but not part of the step
    optimizer_peak_bytes: int | None
    time_ns: int
    recompute_ns: int
    profile_seconds: float
    planning_seconds: float
    modules: list[ModuleRow] = field(default_factory=list)
    wait_ns: int = 0
    host_peak_bytes: int = 0
    parked_bytes: int = 0  # of the optimizer's state, that waits in the host's memory during the step
    arena: str = ""
    slices: str = ""  # what runs slice by slice, and in how many
    at_peak: str = ""
    loss: str = ""  # what the caller's loss takes that it would not take inside of the step
    communication: str = ""  # how long collectives take, and for how long nothing runs beside them

    def __str__(self) -> str:
        size = _core.format_bytes
        percent = planning.recomputation_percent(self.recompute_ns, self.time_ns - self.wait_ns)
        parked = f", of it {size(self.parked_bytes)} of the optimizer's state" if self.parked_bytes else ""
        host = f"{size(self.host_peak_bytes)} stored{parked}, {self.wait_ns / 1e6:.2f} ms of waiting for copies planned"
        facts = [
            ("budget", "none" if self.budget_bytes is None else size(self.budget_bytes)),
            ("peak, predicted", f"{size(self.peak_bytes)} ({self.peak_bytes} bytes), {self.at_peak}"),
            ("peak, measured", "no step has run with it yet" if self.measured_peak_bytes is None else
             f"{size(self.measured_peak_bytes)} ({self.measured_peak_bytes} bytes)"),
            ("without recomputation", size(self.plain_peak_bytes)),
            ("beside the step", size(self.outside_bytes)),
            ("optimizer.step()", "not watched: give optimizer= to reprise.compile" if
             self.optimizer_peak_bytes is None else f"{size(self.optimizer_peak_bytes)} at its own peak"),
            ("recomputation", f"{self.recompute_ns / 1e6:.2f} ms, {percent:.1f} % of the step"),
            *([("host's memory", host)] if self.host_peak_bytes else []),
            *([("communication", self.communication)] if self.communication else []),
            *([("slices", self.slices)] if self.slices else []),
            *([("loss, outside", self.loss)] if self.loss else []),
            ("arena", self.arena),
            ("planner", f"{self.planner}; profiled in {self.profile_seconds:.1f} s, "
             f"planned in {self.planning_seconds:.1f} s"),
        ]
        lines = [f"{self.model}", *(f"  {name:<24}{value}" for name, value in facts), ""]
        lines.append(f"  {'module':<40}{'kept':>12}{'computed again':>16}{'time again':>14}")
        for row in self._shown():
            again = f"{row.recomputed_ops} ops" if row.recomputed_ops else ""
            cost = f"{row.recompute_ns / 1e6:.2f} ms" if row.recompute_ns else ""
            lines.append(f"  {row.name or '(the model itself)':<40}{size(row.kept_bytes):>12}{again:>16}{cost:>14}")
        if len(self.modules) > ROWS:
            lines.append(f"  and {len(self.modules) - ROWS} modules that keep less")
        return "\n".join(lines)

    def _shown(self) -> list[ModuleRow]:
        """The rows that matter most, in the order of the model."""
        chosen = sorted(self.modules, key=lambda row: (row.kept_bytes, row.recompute_ns), reverse=True)[:ROWS]
        names = {row.name for row in chosen}
        return [row for row in self.modules if row.name in names]


def communication_line(graph: _core.Graph, costs: _core.Costs, plan: _core.Plan, exposed_ns: int) -> str:
    starts = [op for op in planning.ops_in(plan.actions) if graph.stream(op)]
    if not starts:
        return ""
    times = costs.time_ns
    took = sum(times[op] for op in starts)
    again = len(starts) - len(set(starts))
    return (f"{took / 1e6:.2f} ms in {len(starts)} collectives, {again} of them again; the step waits {exposed_ns / 1e6:.2f} ms "
            "for them")


def arena_line(use: _torch.ArenaUse) -> str:
    size = _core.format_bytes
    if not use.is_on:
        return "off"
    without = f"{use.steps_without} steps without, at last because {use.why_without}" if use.steps_without else ""
    if not use.steps:
        return without or "no step has run yet"
    facts = [f"{size(use.block_bytes)}", f"{use.steps} steps",
             f"{size(use.arena_bytes)} planned, {use.arena_bytes / max(1, use.load_bytes):.4f} of what is live at once",
             f"{use.unplanned} of {use.served + use.unplanned} requests not of the plan"]
    if use.kept:
        facts.append(f"{use.kept} blocks kept by operators")
    return "; ".join([*facts, *([without] if without else [])])


def outside_loss_bytes(graph: _core.Graph, costs: _core.Costs) -> int:
    """What a loss outside of the step takes at once beside the gradient of the logits: the logits and what it computes from
    them. Inside of the step it runs in slices, which need the gradient alone whole. 0: no output is a product over rows that the
    caller gives a gradient for."""
    caller = graph.caller_op
    if caller is None:
        return 0
    given = {costs.value_bytes[value] for value in graph.outputs(caller) if graph.readers(value)}
    kept = sum(costs.value_bytes[value] for value in graph.outputs(caller) if not graph.readers(value))
    logits = max((costs.value_bytes[value] for value in graph.inputs(caller) if _is_product(graph, costs, value)), default=0)
    return logits + kept + costs.workspace_bytes[caller] if logits and logits in given else 0


_PRODUCTS = ("mm", "addmm", "bmm")


def _is_product(graph: _core.Graph, costs: _core.Costs, value: int) -> bool:
    """Whether an output is a product, or one that was cast, and larger than what is computed for the product."""
    made_by = graph.producer(value)
    if made_by is None:
        return False
    read = [other for other in graph.inputs(made_by) if graph.producer(other) is not None]
    if graph.op_name(made_by) == "_to_copy":
        return any(_is_product(graph, costs, other) for other in read)
    return graph.op_name(made_by) in _PRODUCTS and costs.value_bytes[value] > sum(costs.value_bytes[v] for v in read)


def loss_line(graph: _core.Graph, costs: _core.Costs, peak_bytes: int, defers: bool) -> str:
    """Says what is to be gained where the loss is outside of the step; empty if that is little."""
    taken = outside_loss_bytes(graph, costs)
    if taken * LEAST_SHARE < peak_bytes:
        return ""
    how = "use the logits for nothing else before the loss" if defers else "add defer_logits=True or loss= to reprise.compile"
    return f"takes {_core.format_bytes(taken)} beside the gradient of its logits, which slices would save: {how}"


LEAST_SHARE = 16  # a loss with less than this part of the peak is not spoken of


def module_rows(graph: _core.Graph, costs: _core.Costs, plan: _core.Plan) -> list[ModuleRow]:
    report = json.loads(_core.report_json(graph, costs, plan))
    columns = (report["by_module"][key] for key in ("kept_bytes", "recomputed_runs", "recompute_ns", "time_ns"))
    rows = [ModuleRow(*row) for row in zip(report["modules"], *columns, strict=True)]
    return [row for row in rows if row.kept_bytes or row.recomputed_ops]
