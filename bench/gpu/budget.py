"""Is the budget kept? Twenty budgets for each network, from 100 % of the plan without
recomputation to the smallest.

    python bench/gpu/budget.py [--cases resnet50_96,...] [--budgets 20] [--jobs 4] [--again] [-o FOLDER]

Every step of every budget is watched from the call of the model to the return of backward with
PyTorch's own counters. Where Reprise itself resets these, they are read just before. What is in the output folder is not
measured again. Nothing is timed, so nothing waits: with --jobs all run at once, whoever holds a --lock.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from children import Children, Row, add_arguments, give
from common import CPU, GPU, ROOT, STEPS, Training
from measure import Rows, fill

import reprise
from reprise import planning
from reprise.native import _torch

# Large ones far apart, for --jobs.
CASES = ("bert_large_32x512", "densenet161_32", "gpt2_medium_8x1024", "resnet152_48", "pspnet_2", "resnet50_96",
         "llama_1b_4x2048", "googlenet_256", "vgg19_64", "unet_8x572", "vit_large_64")
KEYS = ("case",)
COMMAND = "python bench/gpu/budget.py"
STEPS_PER_BUDGET = 3
# Of the allocator. Reserved alone: memory held for other budgets was given back before.
COUNTERS = {"allocated": "allocated", "requested": "requested", "reserved": "reserved_alone"}


class Watch:
    """Highest numbers of the allocator over a step."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.reset = _torch.reset_peak
        _torch.reset_peak = self._before_reset
        self.highest: dict[str, int] = {}

    def _read(self) -> dict[str, int]:
        if self.device.type == "cpu":
            return {"allocated": _torch.peak_bytes(self.device)}
        stats = torch.cuda.memory_stats(self.device)
        return {key: stats[f"{name}_bytes.all.peak"] for name, key in COUNTERS.items()}

    def _before_reset(self, device: torch.device) -> None:
        self._note()
        self.reset(device)

    def _note(self) -> None:
        for name, value in self._read().items():
            self.highest[name] = max(value, self.highest.get(name, 0))

    def begin(self) -> None:
        self.reset(self.device)
        self.highest = {}

    def end(self) -> dict[str, int]:
        self._note()
        return dict(self.highest)


def row_of(name: str, count: int, device: torch.device, tiny: bool) -> Row:
    training = Training(name, "fp32", device, tiny=tiny)
    model = reprise.compile(training.model, cuda_graphs=False, planning_seconds=1.0)
    watch = Watch(device)
    for _ in range(3):
        watch.begin()
        training.step()
    plain = model.plan.peak_bytes
    region = model.plan.region
    outside = region.current.outside_bytes
    smallest = outside + planning.smallest_budget_bytes(region.graph, planning.AUTO, 3.0)
    rows: list[dict[str, Any]] = []
    for i in range(count):
        budget = plain - (plain - smallest) * i // max(1, count - 1)
        model.plan.set_budget(budget)
        training.model.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what was reserved for larger budgets
        row: dict[str, Any] = {"budget": budget}
        for _ in range(STEPS_PER_BUDGET):
            training.model.zero_grad(set_to_none=True)
            watch.begin()
            training.step()
            highest = watch.end()
            # The first steps of a plan are looked at op by op, and the counters reset at each.
            highest["allocated"] = max(highest["allocated"], model.plan.measured_peak_bytes)
            for key, value in highest.items():
                row[key] = max(value, row.get(key, 0))
        row |= {"predicted": model.plan.peak_bytes,
                "recompute_percent": round(100 * model.plan.recompute_ns / max(1, model.plan.time_ns), 2)}
        rows.append(row)
    inside = sum(row["allocated"] <= row["budget"] for row in rows)
    worst = max(abs(row.get("requested", row["allocated"]) / row["predicted"] - 1) for row in rows)
    return {"case": name, "plain_bytes": plain, "smallest_bytes": smallest, "rows": rows, "inside": inside,
            "worst_requested_percent": round(100 * worst, 3)}


def run(options: argparse.Namespace) -> int:
    rows = Rows(options.output, KEYS, options.again)
    extra = ["--budgets", str(options.budgets), *(["--cpu"] if options.cpu else [])]
    wanted = [{"case": case} for case in options.cases.split(",")]
    with Children(__file__, options.jobs, options.lock) as children:
        failed = fill(children, rows, wanted, lambda key: ["--one", key["case"], *extra], options.seconds)
    found = [row for key in wanted if (row := rows.find(**key)) is not None]
    return 1 if failed or any(row["inside"] < len(row["rows"]) for row in found) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--budgets", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=600, help="for each network")
    add_arguments(parser)
    parser.add_argument("--one", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "budget-cuda")
    options = parser.parse_args()
    if not options.one:
        return run(options)
    row = row_of(options.one, options.budgets, CPU if options.cpu else GPU, options.cpu)
    give(row, f"{COMMAND} --cases {options.one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
