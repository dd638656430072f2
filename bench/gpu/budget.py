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
from typing import Any

import torch
from children import Children, Row, command_line, give
from common import CPU, GPU, Training
from measure import Rows, fill

import reprise

# Large ones far apart, for --jobs.
CASES = ("bert_large_32x512", "densenet161_32", "gpt2_medium_8x1024", "resnet152_48", "pspnet_2", "resnet50_96",
         "llama_1b_4x2048", "googlenet_256", "vgg19_64", "unet_8x572", "vit_large_64")
KEYS = ("case",)
COMMAND = "python bench/gpu/budget.py"
STEPS_PER_BUDGET = 6  # in the first four Reprise resets the counters, and has the peak of what is allocated itself
# Of the allocator. Reserved alone: memory held for other budgets was given back before.
COUNTERS = {"allocated": "allocated", "requested": "requested", "reserved": "reserved_alone"}


def peaks(training: Training) -> dict[str, int]:
    """Of the allocator over a step. Reprise counts by itself in the first steps of a plan, on the CPU in all."""
    plan = training.model.plan
    training.model.zero_grad(set_to_none=True)
    if training.device.type == "cpu":
        training.step()
        return {"allocated": plan.measured_peak_bytes}
    torch.cuda.reset_peak_memory_stats(training.device)
    training.step()
    stats = torch.cuda.memory_stats(training.device)
    found = {key: stats[f"{name}_bytes.all.peak"] for name, key in COUNTERS.items()}
    return found | {"allocated": max(found["allocated"], plan.measured_peak_bytes)}


def row_of(name: str, count: int, device: torch.device, tiny: bool) -> Row:
    training = Training(name, "fp32", device, tiny=tiny)
    model = reprise.compile(training.model, cuda_graphs=False, planning_seconds=1.0)
    for _ in range(3):
        training.step()
    plain = model.plan.peak_bytes
    smallest = model.plan.smallest_budget_bytes(3.0)
    rows: list[dict[str, Any]] = []
    for i in range(count):
        budget = plain - (plain - smallest) * i // max(1, count - 1)
        model.plan.set_budget(budget)
        training.model.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what was reserved for larger budgets
        row: dict[str, Any] = {"budget": budget}
        for _ in range(STEPS_PER_BUDGET):
            for key, value in peaks(training).items():
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
    parser = command_line(__doc__, "budget-cuda", CASES, 600)
    parser.add_argument("--budgets", type=int, default=20)
    options = parser.parse_args()
    if not options.one:
        return run(options)
    row = row_of(options.one, options.budgets, CPU if options.cpu else GPU, options.cpu)
    give(row, f"{COMMAND} --cases {options.one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
