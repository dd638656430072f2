"""Is the budget kept? Each network trains at twenty budgets, from the peak without recomputation down to the smallest.

    scripts/python.sh bench/gpu/budget.py [--cases resnet50_96,...] [--budgets 20] [--jobs 4] [--again] [-o FOLDER]

PyTorch's own counters watch every step of every budget from the call of the model to the return of backward; Reprise reads them
before it resets them. Networks that are in the output folder are not measured again. Nothing is timed, so the processes do not
wait for each other: with --jobs they all run at once, even while another command holds the --lock.
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

# The large networks are far apart in this list, so that --jobs does not run several of them at the same time.
CASES = ("bert_large_32x512", "densenet161_32", "gpt2_medium_8x1024", "resnet152_48", "pspnet_2", "resnet50_96",
         "llama_1b_4x2048", "googlenet_256", "vgg19_64", "unet_8x572", "vit_large_64")
KEYS = ("case",)
COMMAND = "python bench/gpu/budget.py"
STEPS_PER_BUDGET = 6  # In the first four, Reprise resets the counters, and knows the peak of what is allocated itself.
# The allocator's counters, and their names in a row. "reserved_alone" means that memory reserved for other budgets was given
# back before.
COUNTERS = {"allocated": "allocated", "requested": "requested", "reserved": "reserved_alone"}


def peaks(training: Training) -> dict[str, int]:
    """Runs a step and returns the allocator's peaks. In the first steps of a plan (on the CPU, in all steps) Reprise resets the
    counters, so its own count of what is allocated is used too."""
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
            torch.cuda.empty_cache()  # Give back what was reserved for larger budgets.
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
