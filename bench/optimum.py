"""Compares plans of `auto` with a constraint solver on the same problem: CP-SAT of OR-Tools.

    pip install ortools        # only this comparison needs it
    scripts/python.sh bench/optimum.py [--steps vgg19_64,unet_8x572] [--shares 90,50] [--seconds 600]

The model: forward runs as captured, and backward in the order of the plan of `auto`. Before each backward op, any op that may
be repeated can run again, in topological order; an op runs again at most --again times in all. Every run of an op begins an
interval for each of its outputs, which ends after the last reader, or at the reader that overwrites it. The bytes of all
intervals and the workspace of each run share the budget (`cumulative`). The objective is the time spent on running ops again.
The solver starts from the plan of `auto`, which it gets as a hint, so it reports that plan or a better one, and its bound may
prove the plan optimal. What it finds is turned into a plan, which must pass `validate` and `simulate`.

Results go to bench/results/optimum.json after every case, and in the end as a table into docs/algorithms/auto.md. Cases that
are in the file already are not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ortools
from ortools.sat.python import cp_model

from reprise import _core

ROOT = Path(__file__).resolve().parent.parent
SHARES = "90,80,70,60,50,40"


class Step:
    """A graph and its costs, with the facts about them that the model needs."""

    def __init__(self, graph: _core.Graph, costs: _core.Costs) -> None:
        self.graph = graph
        self.time_ns, self.workspace_bytes, self.value_bytes = costs.time_ns, costs.workspace_bytes, costs.value_bytes
        self.ops = range(graph.num_ops)
        self.caller = graph.caller_op
        values = range(graph.num_values)
        self.outputs = set(graph.step_outputs)
        self.pinned = {v for v in values if graph.residence(v) == "resident" or graph.held(v)}
        riders: set[int] = set()  # values that are new contents of pinned memory, made in place
        for v in values:
            old = graph.overwrites(v)
            if old is not None and (old in self.pinned or old in riders):
                riders.add(v)
        self.weightless = {v for v in values if graph.residence(v) == "resident"} | riders
        self.resident_bytes = sum(self.value_bytes[v] for v in values if graph.residence(v) == "resident")
        seeded: set[int] = set()
        self.repeatable = []
        for op in self.ops:
            from_caller = op == self.caller or any(v in seeded for v in graph.inputs(op))
            if from_caller:
                seeded.update(graph.outputs(op))
            elif not graph.once(op) and not any(v in riders or v in self.pinned for v in graph.outputs(op)):
                self.repeatable.append(op)

    def overwritten(self, op: int) -> set[int]:
        olds = (self.graph.overwrites(v) for v in self.graph.outputs(op))
        return {old for old in olds if old is not None}

    def bytes(self, value: int) -> int:
        return 0 if value in self.weightless else self.value_bytes[value]


def plan_of(step: Step, runs: list[int]) -> _core.Plan:
    """The plan with these runs. It frees as early as liveness allows, and computes in place if what is overwritten is dead."""
    graph = step.graph
    needed, after = set(step.outputs), []
    for op in reversed(runs):
        after.append(set(needed))
        needed -= set(graph.outputs(op))
        needed |= set(graph.inputs(op))
    live = {v for v in range(graph.num_values) if graph.residence(v) != "planned"}
    actions, done = [], set()
    for op, later in zip(runs, reversed(after), strict=True):
        olds = step.overwritten(op)
        in_place = bool(olds) and not olds & later and not (op in done and olds & step.pinned)
        done.add(op)
        actions.append((_core.ActionKind.COMPUTE_IN_PLACE if in_place else _core.ActionKind.COMPUTE, op))
        live |= set(graph.outputs(op))
        if in_place:
            live -= olds
        for v in sorted(live - later - step.pinned):
            if graph.residence(v) != "resident":
                actions.append((_core.ActionKind.FREE, v))
                live.discard(v)
    return _core.Plan(actions)


@dataclass
class Run:
    """One run of an op: the first, at a fixed place, or an optional further one, at a place that the solver chooses."""

    op: int
    place: Any
    active: Any  # whether it runs; None for a run that always does
    ends: dict[int, Any] = field(default_factory=dict)  # value -> end of its interval
    domain: list[int] = field(default_factory=list)


class Model:
    def __init__(self, step: Step, order: list[int], budget_bytes: int, again: int) -> None:
        self.step, self.order, self.again = step, order, again
        self.model = cp_model.CpModel()
        self.rank = {op: i for i, op in enumerate(step.repeatable)}
        self.begin = step.caller + 1
        self.stride = len(step.repeatable) + 1
        self.end = self.begin + len(order) * self.stride
        self.intervals: list[Any] = []
        self.demands: list[int] = []
        self.picks: list[tuple[Run, int, Run, Any]] = []
        self.runs: dict[int, list[Run]] = {}
        self._add_runs()
        self._add_lives()
        self._add_reads()
        self.model.add_cumulative(self.intervals, self.demands, budget_bytes - step.resident_bytes)
        self.model.minimize(sum(step.time_ns[run.op] * run.active for run in self.all() if run.active is not None))

    def all(self) -> list[Run]:
        return [run for runs in self.runs.values() for run in runs]

    def place_of(self, turn: int, op: int | None = None) -> int:
        """The place of the turn's own op, or of another op that runs again before it."""
        return self.begin + turn * self.stride + (self.stride - 1 if op is None else self.rank[op])

    def _add_runs(self) -> None:
        graph = self.step.graph
        for op in range(self.begin):
            self.runs[op] = [Run(op, op, None)]
        for turn, op in enumerate(self.order):
            self.runs[op] = [Run(op, self.place_of(turn), None)]
        turn_of = {op: turn for turn, op in enumerate(self.order)}
        last: dict[int, int] = {}  # op -> the last turn at which running it again may be of use
        for op in reversed(self.step.repeatable):
            uses = [turn_of.get(reader, last.get(reader, -1)) for v in graph.outputs(op) for reader in graph.readers(v)]
            uses += [last[reader] for v in graph.outputs(op) for reader in graph.readers(v) if reader in last]
            last[op] = max(uses, default=-1)
        for op in self.step.repeatable:
            first = turn_of.get(op, -1) + 1
            places = [self.place_of(turn, op) for turn in range(first, last[op] + 1)]
            for number in range(1, self.again + 1 if places else 1):
                place = self.model.new_int_var_from_domain(cp_model.Domain.from_values(places), f"at{op}_{number}")
                active = self.model.new_bool_var(f"again{op}_{number}")
                before = self.runs[op][-1]
                if before.active is not None:
                    self.model.add_implication(active, before.active)
                    self.model.add(place > before.place).only_enforce_if(active)
                self.runs[op].append(Run(op, place, active, domain=places))

    def _add_lives(self) -> None:
        graph = self.step.graph
        for v in range(graph.num_values):
            if graph.residence(v) == "arriving":
                self.runs.setdefault(-1 - v, []).append(Run(-1 - v, 0, None, {v: self._life(v, 0, None, forever=False)}))
        for run in self.all():
            if run.op < 0:
                continue
            for v in graph.outputs(run.op):
                forever = run.active is None and (v in self.step.outputs or v in self.step.pinned)
                run.ends[v] = self._life(v, run.place, run.active, forever=forever)
            if self.step.workspace_bytes[run.op]:
                self._interval(run.place, 1, run.place + 1, run.active, self.step.workspace_bytes[run.op])

    def _life(self, v: int, place: Any, active: Any, *, forever: bool) -> Any:
        end = self.end if forever else self.model.new_int_var(0, self.end, f"end{v}_{len(self.intervals)}")
        if self.step.bytes(v):
            length = self.model.new_int_var(1, self.end, "")
            self._interval(place, length, end, active, self.step.bytes(v))
        return end

    def _interval(self, place: Any, length: Any, end: Any, active: Any, demand: int) -> None:
        if active is None:
            self.intervals.append(self.model.new_interval_var(place, length, end, ""))
        else:
            self.intervals.append(self.model.new_optional_interval_var(place, length, end, active, ""))
        self.demands.append(demand)

    def _add_reads(self) -> None:
        graph = self.step.graph
        for run in self.all():
            if run.op < 0:
                continue
            olds = self.step.overwritten(run.op)
            for v in graph.inputs(run.op):
                if graph.residence(v) == "resident":
                    continue
                producer = graph.producer(v)
                sources = self.runs[-1 - v if producer is None else producer]
                self._read(run, v, sources, until=run.place + (0 if v in olds else 1))

    def _read(self, run: Run, v: int, sources: list[Run], until: Any) -> None:
        picks = []
        for source in sources:
            pick = self.model.new_bool_var("")
            self.model.add(source.ends[v] >= until).only_enforce_if(pick)
            if source.active is not None:
                self.model.add_implication(pick, source.active)
            if source.active is not None or run.active is not None:
                self.model.add(source.place < run.place).only_enforce_if(pick)
            picks.append(pick)
            self.picks.append((run, v, source, pick))
        if run.active is None:
            self.model.add_exactly_one(picks)
        else:
            self.model.add_exactly_one([*picks, run.active.negated()])

    def hint(self, runs: list[int]) -> bool:
        """Gives the solver the plan of `auto` as a hint. Returns False if an op runs more often in it than the model allows."""
        seen: dict[int, int] = {}
        places: dict[tuple[int, int], int] = {}
        turn = -1
        waiting: list[tuple[int, int]] = []
        for op in runs:
            number = seen[op] = seen.get(op, -1) + 1
            if number > 0:
                waiting.append((op, number))
            elif op > self.step.caller:
                turn += 1
                places |= {(again, n): self.place_of(turn, again) for again, n in waiting}
                waiting.clear()
        if max(seen.values()) > self.again:
            return False
        at: dict[int, int] = {}
        for op, alternatives in self.runs.items():
            for number, run in enumerate(alternatives):
                if run.active is None:
                    at[id(run)] = run.place
                    continue
                there = places.get((op, number))
                self.model.add_hint(run.active, there is not None)
                self.model.add_hint(run.place, run.domain[0] if there is None else there)
                if there is not None:
                    at[id(run)] = there
        self._hint_reads(at)
        return True

    def _hint_reads(self, at: dict[int, int]) -> None:
        best: dict[tuple[int, int], int] = {}
        for run, v, source, _ in self.picks:
            if id(run) in at and id(source) in at and at[id(source)] < at[id(run)]:
                best[id(run), v] = max(best.get((id(run), v), -1), at[id(source)])
        ends: dict[int, int] = {}
        for run, v, source, pick in self.picks:
            picked = id(run) in at and id(source) in at and best.get((id(run), v)) == at[id(source)]
            self.model.add_hint(pick, picked)
            if picked:
                until = at[id(run)] + (0 if v in self.step.overwritten(run.op) else 1)
                key = source.ends[v].index if not isinstance(source.ends[v], int) else -1
                ends[key] = max(ends.get(key, 0), until)
        for run in self.all():
            for end in run.ends.values():
                if not isinstance(end, int) and id(run) in at:
                    self.model.add_hint(end, max(ends.get(end.index, 0), at[id(run)] + 1))

    def order_of(self, solver: cp_model.CpSolver) -> list[int]:
        chosen = [(run.place if run.active is None else solver.value(run.place), run.op) for run in self.all()
                  if run.op >= 0 and (run.active is None or solver.value(run.active))]
        return [op for _, op in sorted(chosen)]


def compare(graph: _core.Graph, costs: _core.Costs, share: int, options: argparse.Namespace) -> dict[str, Any]:
    step = Step(graph, costs)
    plain = _core.solve(graph, costs, planner="none").simulation
    budget = step.resident_bytes + (plain.peak_bytes - step.resident_bytes) * share // 100
    ours = _core.solve(graph, costs, budget_bytes=budget)
    row: dict[str, Any] = {"share": share, "budget_bytes": budget, "step_ns": plain.time_ns, "ours_ns": None,
                           "bound_ns": None, "solver": None, "solver_ns": None, "solver_bound_ns": None}
    if not ours.found:
        return row | {"floor_bytes": ours.floor_bytes, "smallest_budget_bytes": ours.smallest_budget_bytes}
    bound = ours.lower_bound_ns
    row |= {"ours_ns": ours.simulation.recompute_ns, "reordered": ours.reordered,
            "bound_ns": None if bound is None else max(0, bound - plain.time_ns)}
    runs = [op for kind, op in ours.plan.actions if kind != _core.ActionKind.FREE]
    seen: set[int] = set()
    order = [op for op in runs if op > step.caller and not (op in seen or seen.add(op))]
    model = Model(step, order, budget, options.again)
    hinted = model.hint(runs)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = options.seconds
    solver.parameters.num_workers = options.workers
    begin = time.monotonic()
    status = solver.solve(model.model)
    row |= {"solver": solver.status_name(status).lower(), "hinted": hinted,
            "solver_seconds": round(time.monotonic() - begin, 1)}
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        plan = plan_of(step, model.order_of(solver))
        wrong = _core.validate(graph, plan)
        found = _core.simulate(graph, costs, plan) if wrong is None else None
        if found is None or found.peak_bytes > budget or found.recompute_ns > round(solver.objective_value):
            raise SystemExit(f"{graph.name} at {share} %: the solver's schedule is not a plan within the budget: {wrong}")
        row |= {"solver_ns": found.recompute_ns, "solver_bound_ns": max(0, round(solver.best_objective_bound))}
    return row


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    lines = ["| step | budget | `auto` | solver | proven by the solver | proven by `auto` | solver ran |", "|---" * 7 + "|"]
    for key, row in rows.items():
        if row["ours_ns"] is None:
            continue
        ours, found, least, bound = (
            "–" if row[k] is None else f"{100 * row[k] / row['step_ns']:.2f}"
            for k in ("ours_ns", "solver_ns", "solver_bound_ns", "bound_ns"))
        verdict = "optimal" if row["solver"] == "optimal" else f"at least {least}"
        lines.append(f"| {key.split()[0]} | {row['share']} % | {ours} | {found} | {verdict} | at least {bound} | "
                     f"{row['solver_seconds']:.0f} s |")
    return lines


def write_table(rows: dict[str, dict[str, Any]]) -> None:
    page = ROOT / "docs" / "algorithms" / "auto.md"
    begin, end = "<!-- optimum -->\n", "<!-- end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + "\n".join(table(rows)) + "\n" + end + rest.partition(end)[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", default="vgg19_64,unet_8x572")
    parser.add_argument("--shares", default=SHARES, help="the budgets, in percent of the peak without recomputation")
    parser.add_argument("--seconds", type=float, default=600, help="the solver's time limit for each case")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", type=int, default=2, help="how many times an op may run again")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "optimum.json")
    options = parser.parse_args()
    stored = json.loads(options.output.read_text()) if options.output.exists() else {"rows": {}}
    stored |= {"command": "scripts/python.sh bench/optimum.py", "machine": platform.machine(),
               "ortools": ortools.__version__, "seconds": options.seconds, "workers": options.workers,
               "again": options.again}
    for name in options.steps.split(","):
        graph, costs = _core.parse_graph((ROOT / "data" / "steps" / f"{name}.graph.json").read_text(), name)
        for share in map(int, options.shares.split(",")):
            key = f"{name} {share}"
            if key in stored["rows"]:
                continue
            row = stored["rows"][key] = compare(graph, costs, share, options)
            print(key, {k: v for k, v in row.items() if k not in ("share", "budget_bytes")}, flush=True)
            options.output.write_text(json.dumps(stored, indent=1) + "\n")
    write_table(stored["rows"])
    worse = [key for key, row in stored["rows"].items() if (row["solver_ns"] or 0) < (row["ours_ns"] or 0)
             and row["solver_ns"] is not None]
    print(f"{len(stored['rows'])} cases; the solver's plan is better at: {', '.join(worse) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
