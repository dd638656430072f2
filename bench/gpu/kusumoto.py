"""Table 1 and Figure 3 of Kusumoto et al. (NeurIPS 2019) on a GPU: seven networks at the paper's batch and input sizes.

    python bench/gpu/kusumoto.py [--cases vgg19_64,...] [--jobs 7] [--seconds 300] [--again] [-o FILE]
    python bench/gpu/kusumoto.py --largest [--budgets 16GiB,40GiB,80GiB] [--confirm] [--jobs 7] [-o FILE]

eager         the network as it is
chen, approx-tc, approx-mc, exact-tc, exact-mc
              the paper's planners by the paper's formula at the smallest budget the formula has, time- and
              memory-centric (`time` and `min-cache`), on the captured step
auto=KIND     auto within the peak that KIND reached
auto-paper    auto at the paper's reduction of the peak; where that has no plan, what forbids it
auto-least    auto's smallest peak, and what is live there
auto-1/6 ...  auto at budgets from no recomputation down to the smallest

One capture serves all plans, which run in turns with eager: `ratio` is to eager in the same run. fp32; the peak is the
allocator's, from no gradients to the return of backward. --largest asks reprise.preflight for the largest batch inside
each budget, plain and planned; --confirm then trains a step at those.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from children import Children, add_arguments, clock, compile_beside, device_alone, give, operators_alone
from common import CPU, GPU, ROOT, STEPS, Training
from measure import WARM_STEPS, AsCompiled, Row, Rows, Way, in_turns, times

import reprise
from reprise import planning
from reprise.preflighting import question

# Reduction of the peak in the paper's Table 1, approximate and memory-centric, in percent.
PAPER = {"pspnet_2": 71, "unet_8x572": 45, "resnet50_96": 62, "resnet152_48": 75, "vgg19_64": 36, "densenet161_32": 81,
         "googlenet_256": 39}
THEIRS = {
    "chen": {"planner": "chen"},
    "approx-tc": {"planner": "lower-sets-approx", "objective": "time"},
    "approx-mc": {"planner": "lower-sets-approx", "objective": "min-cache"},
    "exact-tc": {"planner": "lower-sets", "objective": "time"},
    "exact-mc": {"planner": "lower-sets", "objective": "min-cache"},
}
SWEEP = 6
KEYS, LARGEST_KEYS = ("case", "kind"), ("case", "budget_bytes")
PLANNING_SECONDS = 2.0  # for each budget
EXACT_SECONDS = 20.0
MAX_LABELS = 1_000_000  # of a time-centric search: above, times are rounded, and the row has the error
SHOWN = 6  # values that are live at a peak
COMMAND = "python bench/gpu/kusumoto.py"


class OwnPlan(AsCompiled):
    """A plan for the captured step, put in place at each turn."""

    def __init__(self, training: Training, plan: Any, planner: str) -> None:
        super().__init__(training)
        region = training.model.plan.region
        region.use(plan, planner, "this plan")
        self.planned = region.current

    def begin(self) -> None:
        self.training.model.plan.region.plans = [self.planned]


class Network:
    """A captured step and the plans to be measured."""

    def __init__(self, name: str, device: torch.device, tiny: bool, lock: Path | None = None) -> None:
        self.name = name
        self.begin = clock()
        self.training = Training(name, "fp32", device, tiny=tiny)
        self.ways: dict[str, Way] = {"eager": Way(self.training)}
        reprise.compile(self.training.model, cuda_graphs=False, planning_seconds=PLANNING_SECONDS)
        compile_beside(self.training, lock)
        with device_alone(lock):
            self.ways["eager"].run(WARM_STEPS)
            self.eager_peak = self.ways["eager"].peak()
            for _ in range(WARM_STEPS):
                self.training.step()
            self.training.model.zero_grad(set_to_none=True)
        self.region = self.training.model.plan.region
        self.graph = self.region.graph
        self.outside = self.region.current.outside_bytes
        self.plain_peak = self.training.model.plan.peak_bytes
        self.rows: dict[str, Row] = {"eager": {}}

    def theirs(self) -> None:
        for kind, options in THEIRS.items():
            begin = time.monotonic()
            found = reprise.solve(self.graph, judge="formula", max_labels=MAX_LABELS,
                                  should_stop=lambda begin=begin: time.monotonic() > begin + EXACT_SECONDS, **options)
            self.rows[kind] = {"planning_seconds": round(time.monotonic() - begin, 2), "status": found.status,
                               "lower_sets": found.stats.get("lower_sets")}
            if not found.found:
                self.rows[kind]["refused"] = f"{found.status}: {found.message}"
                continue
            self.rows[kind] |= {"formula_bytes": found.formula.peak_bytes, "overhead_error_ns": found.overhead_error}
            self._add(kind, found.plan, found.planner)

    def ours(self) -> None:
        least = planning.smallest_budget_bytes(self.graph, planning.AUTO, PLANNING_SECONDS) + self.outside
        for kind in [kind for kind in THEIRS if kind in self.ways]:
            self._auto(f"auto={kind}", self.rows[kind]["predicted_bytes"])
        self._auto("auto-least", least)
        if "auto-least" in self.ways:
            self.rows["auto-least"]["at_peak"] = live_at_peak(self.graph, self.ways["auto-least"].planned.found.plan)
        if self.name in PAPER:
            self._auto("auto-paper", int(self.eager_peak["peak_bytes"] * (1 - PAPER[self.name] / 100)))
        for i in range(1, SWEEP):
            self._auto(f"auto-{i}/{SWEEP}", self.plain_peak - (self.plain_peak - least) * i // SWEEP)

    def _auto(self, kind: str, budget: int) -> None:
        found = planning.find(self.graph, max(0, budget - self.outside), planning.AUTO, PLANNING_SECONDS)
        self.rows[kind] = {"budget_bytes": budget, "planning_seconds": round(found.seconds, 2)}
        if found.plan is None:
            least = found.smallest_budget_bytes + self.outside
            self.rows[kind] |= {"least_bytes": least, "refused": f"no plan was found within {budget} bytes, the smallest "
                                f"budget known is {least}; auto-least says what is live there"}
        else:
            self._add(kind, found.plan, found.planner)

    def _add(self, kind: str, plan: Any, planner: str) -> None:
        way = OwnPlan(self.training, plan, planner)
        self.ways[kind] = way
        simulation = way.planned.found.simulation
        self.rows[kind] |= {"predicted_bytes": way.planned.peak_bytes + self.outside,
                            "recompute_percent": round(100 * simulation.recompute_ns / max(1, simulation.time_ns), 2)}

    def measure(self, samples: int) -> list[Row]:
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
        common = {"eager_peak_bytes": eager_bytes, "paper_reduction_percent": PAPER.get(self.name),
                  "set_up_seconds": set_up}
        last = sorted(self.rows, key="eager".__eq__)  # with it the case counts as complete
        return [{"case": self.name, "kind": kind} | self.rows[kind] | common for kind in last]


def live_at_peak(graph: Any, plan: Any) -> dict[str, Any]:
    """Which op runs at the highest instant, and the largest values that are there."""
    known = reprise.timeline(graph, plan)
    _, op = plan.steps[known.peak_step]
    values = sorted(known.live_at_peak, key=graph.bytes, reverse=True)

    def name(value: int) -> str:
        producer = graph.producer(value)
        return graph.residence(value) if producer is None else f"{graph.op_name(producer)} of {graph.scope_name(producer)}"

    return {"op": graph.op_name(op), "module": graph.scope_name(op), "workspace_bytes": graph.workspace_bytes(op),
            "reads_bytes": sum(graph.bytes(v) for v in graph.inputs(op)),
            "writes_bytes": sum(graph.bytes(v) for v in graph.outputs(op)),
            "resident_bytes": sum(graph.bytes(v) for v in values if graph.residence(v) == "resident"),
            "largest": [[graph.bytes(v), name(v)] for v in values[:SHOWN]]}


def one_network(name: str, options: argparse.Namespace) -> None:
    network = Network(name, CPU if options.cpu else GPU, options.cpu, options.lock)
    network.theirs()
    network.ours()
    with device_alone(options.lock):
        rows = network.measure(options.samples)
    for row in rows:
        give(row, f"{COMMAND} --cases {name}")


def fit_row(fit: Any) -> Row | None:
    return fit and {"batch": fit.batch, "predicted_bytes": fit.peak_bytes,
                    "predicted_ms": fit.time_ns and round(fit.time_ns / 1e6, 3)}


def largest(name: str, options: argparse.Namespace) -> None:
    """One question for all budgets: captures at the batch sizes it has looked at serve the next ones."""
    with device_alone(options.lock):
        training = Training(name, "fp32", CPU if options.cpu else GPU, tiny=options.cpu)
    asked = question(training.model, (training.args, training.kwargs), 0, device=None, optimizer=None, reserve=0,
                     planner=planning.AUTO, planning_seconds=PLANNING_SECONDS, profile="measure")
    for budget in map(reprise.parse_bytes, options.budgets.split(",")):
        begin = clock()
        asked.budget_bytes = budget
        with operators_alone(options.lock):  # no other part of it uses the device
            found = asked.answer(largest=True)
        row: Row = {"case": name, "budget_bytes": budget, "plain": fit_row(found.largest_plain),
                    "planned": fit_row(found.largest_planned), "seconds": round(clock() - begin, 1)}
        give(row, f"{COMMAND} --largest --cases {name}")


def confirm(name: str, options: argparse.Namespace) -> None:
    """A real step at a size that was predicted, in a process where nothing else lies on the device."""
    kind, batch, budget = options.at.split(":")
    with device_alone(options.lock):
        training = Training(name, "fp32", CPU if options.cpu else GPU, tiny=options.cpu, batch=int(batch))
        try:
            if kind == "planned":
                reprise.compile(training.model, int(budget), cuda_graphs=False, planning_seconds=PLANNING_SECONDS)
            way = AsCompiled(training) if kind == "planned" else Way(training)
            way.run(WARM_STEPS)
            found: Row = {"measured_bytes": way.peak()["peak_bytes"], "ms": round(way.sample(1), 3)}
        except (reprise.RepriseError, torch.OutOfMemoryError) as error:
            found = {"refused": f"{type(error).__name__}: {error}"[:600]}
    give({"case": name, kind: found}, f"{COMMAND} --largest --confirm --cases {name}")


def missing(rows: Rows, case: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Of a case: keys of the rows that the file does not have."""
    keys = [{"budget_bytes": reprise.parse_bytes(budget)} for budget in options.budgets.split(",")] if options.largest \
        else [{"kind": "eager"}]
    return [key for key in keys if rows.find(case=case, **key) is None]


def confirm_all(children: Children, rows: Rows, case: str, options: argparse.Namespace, extra: list[str]) -> int:
    failed = 0
    for key in (reprise.parse_bytes(budget) for budget in options.budgets.split(",")):
        row = rows.find(case=case, budget_bytes=key)
        for kind in ("plain", "planned"):
            fit = row and row[kind]
            if not fit or {"measured_bytes", "refused"} & fit.keys():
                continue
            found: list[Row] = []
            at = f"{kind}:{fit['batch']}:{key}"
            error = children.run(["--one", case, "--at", at, *extra], options.seconds, found.append)
            if error:
                failed += 1
                print(f"{case}, {at}: {error}", flush=True)
            else:
                row = row | {kind: fit | found[0][kind]}
                rows.add(row)
    return failed


def run(options: argparse.Namespace) -> int:
    rows = Rows(options.output, LARGEST_KEYS if options.largest else KEYS, options.again)
    extra = ["--samples", str(options.samples), *(["--cpu"] if options.cpu else [])]

    def one_case(case: str) -> int:
        failed = 0
        wanted = missing(rows, case, options)
        if wanted:
            more = ["--largest", "--budgets", ",".join(str(k["budget_bytes"]) for k in wanted)] if options.largest else []
            error = children.run(["--one", case, *more, *extra], options.seconds, rows.add)
            if error:
                failed += 1
                for key in missing(rows, case, options):
                    rows.add({"case": case, "error": error, "facts": {}} | key)
        if options.largest and options.confirm:
            failed += confirm_all(children, rows, case, options, extra)
        return failed

    with Children(__file__, options.jobs, options.lock) as children:
        return 1 if children.each(one_case, options.cases.split(",")) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(PAPER))
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=300, help="for each network")
    parser.add_argument("--largest", action="store_true", help="the largest batches inside --budgets instead")
    parser.add_argument("--budgets", default="16GiB,40GiB,80GiB")
    parser.add_argument("--confirm", action="store_true", help="with a real step at each predicted size")
    add_arguments(parser)
    parser.add_argument("--again", action="store_true", help="also what is in the file")
    parser.add_argument("--cpu", action="store_true", help="tiny networks on the CPU, to try the command")
    parser.add_argument("--one", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--at", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.one:
        (confirm if options.at else largest if options.largest else one_network)(options.one, options)
        return 0
    name = "kusumoto-largest-cuda.json" if options.largest else "kusumoto-cuda.json"
    options.output = options.output or ROOT / "bench" / "results" / name
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
