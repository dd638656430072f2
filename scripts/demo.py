#!/usr/bin/env python3
"""Plans the seven networks of Kusumoto et al. inside half of their memory and prints what each planner does."""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = ["vgg19", "resnet50", "resnet152", "densenet161", "googlenet", "unet", "pspnet"]
PLANNERS = ["chen", "rotor", "lower-sets-approx", "lower-sets", "auto"]
SECONDS = 10  # the exact planner has millions of pairs of lower sets to look at on two of the networks
INFEASIBLE, STOPPED = 1, 4
COLUMNS = "{:<13}{:>11}  {:<19}{:>11}{:>8}{:>15}{:>13}"


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.3f} GB"


def plan(command: pathlib.Path, graph: pathlib.Path, planner: str, budget: int | str) -> dict:
    """What `reprise plan` says as JSON; raises where it failed rather than answered."""
    call = [command, "plan", graph, "--planner", planner, "--budget", str(budget), "--seconds", str(SECONDS), "--json"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode not in (0, INFEASIBLE, STOPPED):
        sys.exit(done.stderr.strip() or f"reprise plan exited with {done.returncode}")
    return json.loads(done.stdout)


def row(name: str, budget: str, answer: dict, baseline: dict) -> str:
    took = f"{answer['seconds']:.2f} s" + ("*" if answer["status"] == "stopped" else "")
    if answer["status"] == "infeasible":
        smallest = f"no; {gigabytes(answer['smallest_budget_bytes'])} at least"
        return f"{name:<13}{budget:>11}  {answer['planner']:<19}{smallest:>34}{took:>13}"
    share = f"{100 * answer['peak_bytes'] / baseline['peak_bytes']:.0f} %"
    recomputed = f"{100 * answer['recompute_ns'] / baseline['time_ns']:.1f} %"
    return COLUMNS.format(name, budget, answer["planner"], gigabytes(answer["peak_bytes"]), share, recomputed, took)


def show(command: pathlib.Path, network: str) -> None:
    graph = ROOT / "data" / "papers" / f"{network}.graph.json"
    baseline = plan(command, graph, "none", "min")
    print(row(baseline["graph"], "", baseline, baseline))
    budget = baseline["peak_bytes"] // 2
    for planner in PLANNERS:
        print(row("", gigabytes(budget), plan(command, graph, planner, budget), baseline), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", type=pathlib.Path, help="the reprise command")
    arguments = parser.parse_args()
    print("One training step of each network, planned inside half of the memory it needs without recomputation.")
    print("Recomputed: share of the forward pass that runs again. Sizes without parameters, as in the paper.\n")
    print(COLUMNS.format("network", "budget", "planner", "peak", "", "recomputed", "planned in"))
    for network in NETWORKS:
        show(arguments.command, network)
    print(f"\n* stopped after {SECONDS} s with the best plan so far.")
    print("One network over all budgets: build/release/tools/reprise curve data/papers/resnet50.graph.json")


if __name__ == "__main__":
    main()
