"""Trains inside a share of eager's peak with values stored in the host's memory, beside other ways that use it.

    python bench/gpu/host_memory.py [--cases resnet50_96,...] [--dtype tf32] [--share 0.5] [--own] [--samples 7] [--jobs 1]
                                    [--again] [-o FOLDER]

eager               the model as it is
recomputed          reprise.compile, without the host's memory
stored              reprise.compile with a host_budget
stored_at_a_quarter the same plan, with every copy made four times, so that the link carries a quarter of what it does
save_on_cpu         torch.autograd.graph.save_on_cpu(pin_memory=True): everything that autograd saves is carried
checkpoint_on_cpu   torch.utils.checkpoint of every block, whose inputs are saved on the CPU

Everything runs under bf16 autocast, or with --dtype tf32 in single precision whose products may round as TF32 does; without CUDA
graphs and with cudnn.benchmark, in one process for each network. --own leaves the last two out. Samples are taken in turns:
`ratio` is the time as a multiple of eager's. The row of `eager` also has the rates of the link.
`lost_percent` is what the plan loses by its own times: recomputation and waits, in percent of the step without both.
`measured_wait_percent` is what a timed step waited. What is in the output folder is not measured again.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from children import Children, clock, command_line, device_alone, give
from common import CPU, GPU, Training
from measure import WARM_STEPS, AsCompiled, Row, Rows, Way, fill, in_turns, times
from rival_ways import Blocks

import reprise
from reprise.native import _torch

CASES = ("resnet50_96", "gpt2_medium_8x1024", "llama_1b_4x2048")
KEYS = ("case", "dtype", "kind")
COMMAND = "python bench/gpu/host_memory.py"
PLANNING_SECONDS = 6.0
HOST_BUDGET = "48GiB"
LAST = "recomputed"  # it is there on the CPU too


class SavedOnCpu(Way):
    def step(self) -> None:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            super().step()


class CheckpointsOnCpu(Blocks):
    def step(self) -> None:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            super().step()


class Planned(AsCompiled):
    """Reprise at a budget. One capture serves all; a plan that was found is used again."""

    def __init__(self, training: Training, budget: int, host_budget: str | int, copies: int = 1) -> None:
        super().__init__(training)
        self.budget, self.host_budget, self.copies = budget, host_budget, copies
        self.plan: Any = None

    def begin(self) -> None:
        plan = self.training.model.plan
        plan.set_host_budget(self.host_budget)
        if self.plan is None:
            plan.set_budget(self.budget)
        else:
            plan.use_again(self.plan)
            plan.set_budget(None)
        _torch.repeat_copies(self.copies)

    def end(self) -> None:
        _torch.repeat_copies(1)

    def note(self) -> Row:
        plan = self.plan = self.training.model.plan.at_work
        once = plan.time_ns - plan.recompute_ns - plan.wait_ns
        known = {"predicted_bytes": plan.peak_bytes, "host_peak_bytes": plan.host_peak_bytes,
                 "recompute_percent": round(100 * plan.recompute_ns / once, 2),
                 "wait_percent": round(100 * plan.wait_ns / once, 2),
                 "lost_percent": round(100 * (plan.time_ns - once) / once, 2)}
        if plan.measured_wait_ns is not None and self.copies == 1:
            known["measured_wait_percent"] = round(100 * plan.measured_wait_ns / once, 2)
        return known


def link() -> Row:
    found = _torch.link_of(GPU)
    return {"down_gb_per_s": round(found[0] / 1e9, 1), "up_gb_per_s": round(found[1] / 1e9, 1), "both_ways": found[2]}


def one(case: str, options: argparse.Namespace) -> None:
    begin = clock()
    if options.dtype == "tf32":
        torch.set_float32_matmul_precision("high")
    autocast = "bf16" if options.dtype == "bf16" else "fp32"
    training = Training(case, autocast, CPU if options.cpu else GPU, tiny=options.cpu)
    with device_alone(options.lock):
        eager = Way(training)
        eager.run(WARM_STEPS)
        row: Row = eager.peak()
        budget = int(options.share * row["peak_bytes"])
        others: dict[str, Way] = {}
        if not options.own:
            others = {"save_on_cpu": SavedOnCpu(training), "checkpoint_on_cpu": CheckpointsOnCpu(training)}
        rows = {name: measured(way) for name, way in others.items()}
        rows["eager"] = row | ({} if options.cpu else {"link": link()})
        taken = timed({"eager": eager} | others, rows, options.samples)
        reprise.compile(training.model, cuda_graphs=False, planning_seconds=PLANNING_SECONDS)
        own = {"recomputed": Planned(training, budget, 0)}
        if not options.cpu:
            own |= {"stored": Planned(training, budget, HOST_BUDGET),
                    "stored_at_a_quarter": Planned(training, budget, HOST_BUDGET, copies=4)}
        for name, way in own.items():
            try:
                rows[name] = measured(way) | {"budget_bytes": budget} | way.note()
            except reprise.RepriseError as error:
                rows[name] = {"refused": f"{type(error).__name__}: {error}"}
        # Not in turns with the others: after a checkpointed step, torch.compile would trace the model again.
        taken |= timed({"eager": eager} | own, rows, options.samples)
    command = f"{COMMAND} --dtype {options.dtype} --share {options.share}"
    for name in [*(name for name in rows if name != LAST), LAST]:
        known = {"case": case, "dtype": options.dtype, "kind": name, "share": options.share}
        give(known | {"set_up_seconds": round(clock() - begin, 1)} | rows[name] | taken.get(name, {}), command)


def timed(ways: dict[str, Way], rows: dict[str, Row], samples: int) -> dict[str, Row]:
    possible = {name: way for name, way in ways.items() if "refused" not in rows[name]}
    found = in_turns(possible, samples)
    return {name: times(found[name], found["eager"]) for name in possible}


def measured(way: Way) -> Row:
    try:
        way.run(WARM_STEPS)
        return way.peak()
    except torch.OutOfMemoryError as error:
        return {"refused": str(error)}


def main() -> int:
    parser = command_line(__doc__, "host-memory-cuda", CASES, 300, samples=7)
    parser.add_argument("--share", type=float, default=0.5, help="the budget, as a share of eager's peak")
    parser.add_argument("--dtype", choices=("bf16", "tf32"), default="bf16")
    parser.add_argument("--own", action="store_true", help="leave save_on_cpu and checkpoint_on_cpu out")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    if options.one:
        one(options.one, options)
        return 0
    extra = ["--samples", str(options.samples), "--dtype", options.dtype, "--share", str(options.share),
             *(["--own"] if options.own else []), *(["--cpu"] if options.cpu else [])]
    rows = Rows(options.output, KEYS, options.again)
    wanted = [{"case": case, "dtype": options.dtype, "kind": LAST} for case in options.cases.split(",")]
    with Children(__file__, options.jobs, options.lock) as children:
        return 1 if fill(children, rows, wanted, lambda key: ["--one", key["case"], *extra], options.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
