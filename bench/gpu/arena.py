"""Steps with and without an arena at the same budgets: what the device had to reserve, and what a step took.

    python bench/gpu/arena.py [--cases resnet50_96,...] [--samples 6] [--jobs 3] [--again] [-o FOLDER]

without    memory comes from PyTorch's allocator, piece by piece
arena      the step is served from one block at planned addresses

Each case has a process of its own. Budgets are shares of the peak that the plan without recomputation has. `reserved_bytes` is
the allocator's over a step that begins with an empty cache. Samples are taken in turns with eager; bf16 autocast.
"""

from __future__ import annotations

import argparse
import sys

import torch
from children import Children, clock, command_line, compile_beside, device_alone, give
from common import CPU, GPU, Training
from measure import WARM_STEPS, Row, Rows, Way, fill
from rival_ways import Planned
from rivals import PLANNING_SECONDS, at_budget, refusal

import reprise

CASES = ("resnet50_96", "gpt2_medium_8x1024", "resnet152_48", "vit_large_64", "densenet161_128")
SHARES = (1.0, 0.7, 0.5, 0.35)
KINDS = {"without": False, "arena": True}
KEYS = ("case", "kind", "share")
COMMAND = "python bench/gpu/arena.py"


def one(case: str, options: argparse.Namespace) -> None:
    training = Training(case, "fp32", CPU, tiny=True) if options.cpu else Training(case, "bf16", GPU)
    eager = Way(training)
    reprise.compile(training.model, cuda_graphs=False, arena=False, planning_seconds=PLANNING_SECONDS)
    compile_beside(training, options.lock)
    with device_alone(options.lock):
        for _ in range(WARM_STEPS):
            training.step()
        training.model.zero_grad(set_to_none=True)
    plan = training.model.plan
    highest, outside = plan.peak_bytes, plan.outside_bytes
    for kind, arena in KINDS.items():
        for share in SHARES:
            begin = clock()
            row: Row = {"case": case, "kind": kind, "share": share, "budget_bytes": int(share * highest)}
            plan.set_arena(arena)
            try:
                way = Planned(training, row["budget_bytes"], False, outside)
            except reprise.RepriseError as error:
                row |= refusal(error)
            else:
                with device_alone(options.lock):
                    row |= at_budget(way, eager, options.samples, begin)
                    use = plan.arena
                    row |= {"in_arena": use.is_on, "unplanned": use.unplanned, "why_without": use.why_without}
            give(row, f"{COMMAND} --cases {case}")


def main() -> int:
    options = command_line(__doc__, "arena-cuda", CASES, 400, samples=6).parse_args()
    torch.backends.cudnn.benchmark = True
    if options.one:
        one(options.one, options)
        return 0
    rows = Rows(options.output, KEYS, options.again)
    extra = ["--samples", str(options.samples), *(["--cpu"] if options.cpu else [])]
    wanted = [{"case": case, "kind": "arena", "share": SHARES[-1]} for case in options.cases.split(",")]
    with Children(__file__, options.jobs, options.lock) as children:
        return 1 if fill(children, rows, wanted, lambda key: ["--one", key["case"], *extra], options.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
