"""What each partition of forward and backward takes in the fused engine, at the same budgets.

    python bench/gpu/partitions.py [--cases gpt2_medium_8x1024,...] [--samples 6] [--jobs 3] [-o FOLDER]

near    what torch.compile saves for backward when memory does not matter
far     less is saved: cheap chains are computed again inside backward's kernels (torch.compile's setting 0.8)

Each is lowered and planned at the same bytes, shares of the peak that `near` has without a plan. Samples in turns with
eager in one process for each case, bf16 autocast; `ratio` is to eager.
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

CASES = ("gpt2_medium_8x1024", "resnet50_96", "llama_1b_4x2048")
SHARES = (1.0, 0.65, 0.5, 0.4)
KINDS = ("near", "far")
KEYS = ("case", "kind", "share")
COMMAND = "python bench/gpu/partitions.py"


def one(case: str, options: argparse.Namespace) -> None:
    training = Training(case, "fp32", CPU, tiny=True) if options.cpu else Training(case, "bf16", GPU)
    eager, highest = Way(training), 0
    reprise.compile(training.model, cuda_graphs=False, planning_seconds=PLANNING_SECONDS, engine="fused")
    for kind in KINDS:
        begin = clock()
        training.model.plan.set_budget(None)
        training.model.plan.set_partition(kind)
        compile_beside(training, options.lock)
        with device_alone(options.lock):
            for _ in range(WARM_STEPS):
                training.step()
            training.model.zero_grad(set_to_none=True)
        plan = training.model.plan
        highest = highest or plan.peak_bytes
        for share in SHARES:
            budget = int(share * highest)
            row: Row = {"case": case, "kind": kind, "share": share, "budget_bytes": budget, "ops": plan.graph.num_ops}
            try:
                way = Planned(training, budget, False, plan.outside_bytes)
            except reprise.RepriseError as error:
                row |= refusal(error)
            else:
                with device_alone(options.lock):
                    row |= at_budget(way, eager, options.samples, begin)
            give(row, f"{COMMAND} --cases {case}")


def main() -> int:
    parser = command_line(__doc__, "partitions-cuda", CASES, 400, samples=6)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    if options.one:
        one(options.one, options)
        return 0
    rows = Rows(options.output, KEYS, options.again)
    extra = ["--samples", str(options.samples), *(["--cpu"] if options.cpu else [])]
    wanted = [{"case": case, "kind": "far", "share": SHARES[-1]} for case in options.cases.split(",")]
    with Children(__file__, options.jobs, options.lock) as children:
        return 1 if fill(children, rows, wanted, lambda key: ["--one", key["case"], *extra], options.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
