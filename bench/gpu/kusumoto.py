"""Table 1 of Kusumoto et al. (NeurIPS 2019) on a GPU: seven networks at the paper's batch and input sizes.

    scripts/python.sh bench/gpu/kusumoto.py [--cases vgg19_64,...] [--jobs 7] [--seconds 300] [--again] [-o FOLDER]

eager         the network as it is
chen, approx-tc, approx-mc, exact-tc, exact-mc
              the paper's planners, time-centric (`time`) and memory-centric (`min-cache`), on the captured step, by the
              paper's formula and at the smallest budget that it allows. If the step has too many lower sets for the exact
              planners, they plan the paper's own graph, and that plan is not run
auto=KIND     auto within the peak that KIND reached
auto-paper    auto at the paper's reduction of the peak, or, if there is no plan, what prevents it
auto-least    auto at its smallest peak, and what is live there
auto-1/6 ...  auto at budgets from no recomputation down to the smallest

One capture serves all plans, which run in fp32 and in turns with eager: `ratio` is the time as a multiple of eager's in the
same run. The peak is the allocator's, over a step that starts without gradients and ends when backward returns.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from captured import MAX_PARTIALS, PLANNING_SECONDS, THEIRS, NetworkStep, live_at_peak
from children import command_line, device_alone, give
from common import CPU, GPU, ROOT, Training
from measure import Row, fill_cases

import reprise
from reprise import planning

sys.path.insert(0, str(ROOT / "scripts" / "documents"))

import reproduce_tables

# The reduction of the peak in percent in the paper's Table 1, by the approximate memory-centric planner.
PAPER = {"pspnet_2": 71, "unet_8x572": 45, "resnet50_96": 62, "resnet152_48": 75, "vgg19_64": 36, "densenet161_32": 81,
         "googlenet_256": 39}
SWEEP = 6
KEYS = ("case", "kind")
COMMAND = "python bench/gpu/kusumoto.py"


def add_theirs(step: NetworkStep, name: str) -> None:
    for kind, options in THEIRS.items():
        step.add_theirs(kind)
        if "refused" in step.rows[kind] and name in PAPER:
            step.rows[kind]["papers_graph"] = on_papers_graph(name, options)


def on_papers_graph(name: str, options: dict[str, Any]) -> Row:
    """A plan for the paper's own graph, which is not run: its peak with liveness, estimated as in docs/tables/kusumoto2019.md
    and at the budget that is used there."""
    network = next(n for n in reproduce_tables.NETWORKS if n.stem == name.rpartition("_")[0])
    path = ROOT / "data" / "papers" / f"{network.stem}.graph.json"
    graph, costs = reprise.parse_graph(path.read_text(), source=path.name)
    least = reprise.solve(graph, costs, judge="formula", **options).smallest_budget_bytes
    budget = -(-least // reproduce_tables.GRID) * reproduce_tables.GRID
    found = reprise.solve(graph, costs, judge="formula", budget_bytes=budget, max_partials=MAX_PARTIALS, **options)
    plain = reprise.solve(graph, costs, planner="none")
    peaks = [reproduce_tables.estimate(network, solved.simulation.peak_bytes) for solved in (found, plain)]
    return {"lower_sets": found.stats["lower_sets"], "peak_gb": round(peaks[0], 3), "plain_gb": round(peaks[1], 3),
            "reduction_percent": round(100 * (1 - peaks[0] / peaks[1]), 1),
            "forward_again_percent": round(100 * found.simulation.recompute_ns / plain.simulation.time_ns, 1)}


def add_ours(step: NetworkStep, name: str) -> None:
    least = planning.smallest_budget_bytes(step.graph, step.costs, planning.AUTO, PLANNING_SECONDS) + step.outside
    for kind in [kind for kind in THEIRS if kind in step.ways]:
        step.add_auto(f"auto={kind}", step.rows[kind]["predicted_bytes"])
    step.add_auto("auto-least", least)
    if "auto-least" in step.ways:
        step.rows["auto-least"]["at_peak"] = live_at_peak(step.graph, step.costs, step.ways["auto-least"].plan)
    if name in PAPER:
        step.add_auto("auto-paper", int(step.eager_peak["peak_bytes"] * (1 - PAPER[name] / 100)))
    for i in range(1, SWEEP):
        step.add_auto(f"auto-{i}/{SWEEP}", step.plain_peak - (step.plain_peak - least) * i // SWEEP)


def one_network(name: str, options: argparse.Namespace) -> None:
    step = NetworkStep(Training(name, "fp32", CPU if options.cpu else GPU, tiny=options.cpu), options.lock)
    add_theirs(step, name)
    add_ours(step, name)
    with device_alone(options.lock):
        rows = step.measure(options.samples)
    for row in rows:
        give({"case": name, "paper_reduction_percent": PAPER.get(name)} | row, f"{COMMAND} --cases {name}")


def main() -> int:
    options = command_line(__doc__, "kusumoto-cuda", PAPER, 300, samples=5).parse_args()
    if not options.one:
        return fill_cases(__file__, options, KEYS, "eager")
    one_network(options.one, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
