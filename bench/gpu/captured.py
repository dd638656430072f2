"""A captured step with the plans of several planners, which are measured in turns with eager."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from children import Row, clock, compile_beside, device_alone
from common import Training
from measure import WARM_STEPS, AsCompiled, Way, in_turns, times

import reprise
from reprise import planning

# The planners of Kusumoto et al., and Chen's, with which they compare themselves.
THEIRS = {
    "chen": {"planner": "chen"},
    "approx-tc": {"planner": "lower-sets-approx", "objective": "time"},
    "approx-mc": {"planner": "lower-sets-approx", "objective": "min-cache"},
    "exact-tc": {"planner": "lower-sets", "objective": "time"},
    "exact-mc": {"planner": "lower-sets", "objective": "min-cache"},
}
PLANNING_SECONDS = 2.0  # for each budget
EXACT_SECONDS = 20.0
MAX_PARTIALS = 1_000_000  # A time-centric search with more of them rounds times, and the row says by how much.
SHOWN = 6  # how many of the values that are live at a peak are listed


class OwnPlan(AsCompiled):
    """A plan for the captured step, which the model is given anew at each of its turns."""

    def __init__(self, training: Training, plan: Any, planner: str) -> None:
        super().__init__(training)
        self.plan, self.planner = plan, planner
        self.taken: Any = None  # After the first turn, the plan with what was measured of it.
        at_work = training.model.plan
        self.simulation = reprise.simulate(at_work.graph, at_work.costs, plan)

    def begin(self) -> None:
        if self.taken is None:
            self.taken = self.training.model.plan.use(self.plan, self.planner)
        else:
            self.training.model.plan.use_again(self.taken)


class NetworkStep:
    """A network that is captured, measured and warmed up, with the plans that are added to it and their rows."""

    def __init__(self, training: Training, lock: Path | None = None) -> None:
        self.begin = clock()
        self.training = training
        self.ways: dict[str, Way] = {"eager": Way(training)}
        reprise.compile(training.model, cuda_graphs=False, planning_seconds=PLANNING_SECONDS)
        compile_beside(training, lock)
        with device_alone(lock):
            clear_workspaces(training.device)
            self.ways["eager"].run(WARM_STEPS)
            self.eager_peak = self.ways["eager"].peak()
            clear_workspaces(training.device)
            for _ in range(WARM_STEPS):
                training.step()
            training.model.zero_grad(set_to_none=True)
        plan = training.model.plan
        self.graph, self.costs = plan.graph, plan.costs
        self.outside, self.plain_peak = plan.outside_bytes, plan.peak_bytes
        self.rows: dict[str, Row] = {"eager": {}}

    def add_theirs(self, kind: str, **options: Any) -> None:
        """Adds the plan of one of the paper's planners, by the paper's formula, at the smallest budget that the formula allows
        or at the one in `options`."""
        begin = time.monotonic()
        found = reprise.solve(self.graph, self.costs, judge="formula", max_partials=MAX_PARTIALS,
                              should_stop=lambda: time.monotonic() > begin + EXACT_SECONDS, **THEIRS[kind], **options)
        self.rows[kind] = {"planning_seconds": round(time.monotonic() - begin, 2), "status": found.status,
                           "lower_sets": found.stats.get("lower_sets")}
        if found.found:
            self.rows[kind] |= {"formula_bytes": found.formula.peak_bytes, "overhead_error_ns": found.overhead_error}
            self._add(kind, found.plan, found.planner)
        else:
            self.rows[kind]["refused"] = f"{found.status}: {found.message}"

    def add_auto(self, kind: str, budget: int) -> None:
        found = planning.find(self.graph, self.costs, max(0, budget - self.outside), planning.AUTO, PLANNING_SECONDS)
        self.rows[kind] = {"budget_bytes": budget, "planning_seconds": round(found.seconds, 2)}
        if found.plan is None:
            least = found.smallest_budget_bytes + self.outside
            self.rows[kind] |= {"least_bytes": least, "refused": f"no plan was found within {budget} bytes, the smallest "
                                f"budget known is {least}"}
        else:
            self._add(kind, found.plan, found.planner)

    def _add(self, kind: str, plan: Any, planner: str) -> None:
        way = OwnPlan(self.training, plan, planner)
        self.ways[kind] = way
        self.rows[kind] |= {"predicted_bytes": way.simulation.peak_bytes + self.outside,
                            "recompute_percent": recompute_percent(way.simulation)}

    def measure(self, samples: int) -> list[Row]:
        """The rows of all kinds. Eager's row is the last one, because a case counts as complete once it has that row."""
        eager_bytes = self.eager_peak["peak_bytes"]
        for kind, way in self.ways.items():
            if kind != "eager":
                way.run(WARM_STEPS)
            self.rows[kind] |= self.eager_peak if kind == "eager" else way.peak()
            self.rows[kind]["reduction_percent"] = round(100 * (1 - self.rows[kind]["peak_bytes"] / eager_bytes), 1)
        set_up = round(clock() - self.begin, 1)
        found = in_turns(self.ways, samples)
        for kind, taken in found.items():
            self.rows[kind] |= times(taken, found["eager"])
        common = {"eager_peak_bytes": eager_bytes, "set_up_seconds": set_up}
        return [{"kind": kind} | self.rows[kind] | common for kind in sorted(self.rows, key="eager".__eq__)]


def recompute_percent(simulation: reprise.Simulation) -> float:
    return round(100 * simulation.recompute_ns / max(1, simulation.time_ns), 2)


def clear_workspaces(device: torch.device) -> None:
    """Frees the workspaces that cuBLAS keeps for every thread, so that those of eager's two threads do not count in Reprise's
    peak, nor those of Reprise's thread in eager's."""
    if device.type == "cuda":
        torch._C._cuda_clearCublasWorkspaces()


def live_at_peak(graph: reprise.Graph, costs: reprise.Costs, plan: reprise.Plan) -> dict[str, Any]:
    """The op that runs at the peak, and the largest values that are live then."""
    known = reprise.timeline(graph, costs, plan)
    _, op = plan.actions[known.peak_action]
    sizes = costs.value_bytes
    values = sorted(known.live_at_peak, key=sizes.__getitem__, reverse=True)

    def name(value: int) -> str:
        producer = graph.producer(value)
        return graph.residence(value) if producer is None else f"{graph.op_name(producer)} of {graph.scope_name(producer)}"

    return {"op": graph.op_name(op), "module": graph.scope_name(op), "workspace_bytes": costs.workspace_bytes[op],
            "reads_bytes": sum(sizes[v] for v in graph.inputs(op)),
            "writes_bytes": sum(sizes[v] for v in graph.outputs(op)),
            "resident_bytes": sum(sizes[v] for v in values if graph.residence(v) == "resident"),
            "largest": [[sizes[v], name(v)] for v in values[:SHOWN]]}
