"""Compares the time of a step with eager PyTorch's, in one process and in turns.

    scripts/python.sh bench/gpu/speed.py [--cases resnet50_96,...] [--dtypes fp32,bf16] [--kinds none] [--samples 10] [-o FILE]

eager       the model as it is
none        captured, without recomputation
planned     at half of eager's peak, without CUDA graphs
graphs      at half of eager's peak, as CUDA graphs; their pool and everything beside it count

A row also says how long the device spent in kernels in one step of each kind. If a kind is slower than it should be, the row
lists the kernels that take longer than in eager.

cudnn.benchmark is on. A sample is a few steps in a row (forward, loss, backward), as in training, with the device idle at both
ends. The median of each kind's samples is compared with eager's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from common import CPU, GPU, ROOT, STEPS, Training, facts, one_process_each, write
from measure import Way, in_turns, own_bytes, times

import reprise
from reprise import memory

CASES = ("resnet50_96", "resnet152_48", "densenet161_32", "vgg19_64", "gpt2_medium_8x1024")
WARM_STEPS = 5
PLANNING_SECONDS = 3.0
ALLOWED = {"none": 1.02, "graphs": 1.0}  # as multiples of eager's time


class Kind(Way):
    """A way to run the step: by `call`, or, if that is None, as the captured step."""

    def __init__(self, training: Training, call: Any = None, budget: int | None = None, beside: int = 0,
                 graphs: bool = False) -> None:
        super().__init__(training)
        self.call, self.budget, self.beside, self.graphs = call, budget, beside, graphs
        self.plan: Any = None  # The plan, once it has been found.
        self.facts: dict[str, Any] = {}

    def begin(self) -> None:
        if self.call is None:
            self._take_over()

    def step(self) -> None:
        self.training.step(self.call)

    def _take_over(self) -> None:
        """Gives the model this kind's budget, plan and CUDA graphs, because all kinds share one capture."""
        plan = self.training.model.plan
        plan.set_cuda_graphs(self.graphs)
        # The pool of the CUDA graphs takes memory while the other kinds run, so these keep their plans without a budget.
        if self.plan is not None and not self.graphs:
            plan.use_again(self.plan)
            plan.set_budget(None)
        else:
            plan.set_budget(self.budget)

    def note(self) -> None:
        plan = self.training.model.plan
        self.plan = plan.at_work
        self.facts = {"predicted_bytes": plan.peak_bytes - self.beside,
                      "measured_bytes": plan.measured_peak_bytes - self.beside,
                      "recompute_percent": round(100 * plan.recompute_ns / max(1, plan.time_ns), 2),
                      "kernels_ms": round(plan.time_ns / 1e6, 3)}
        if plan.cuda_graphs.recorded:
            self.facts["pool_bytes"] = plan.cuda_graphs.pool_bytes


def beside_bytes(training: Training) -> int:
    return memory.allocated_bytes(training.device) - own_bytes(training) if training.device.type == "cuda" else 0


def kernels_ms(kind: Kind) -> dict[str, float]:
    """The milliseconds that one step spends in each kernel."""
    kind.sample(1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        kind.sample(1)
    return {event.key: event.self_device_time_total / 1e3 for event in profiler.key_averages()}


def compare_kernels(row: dict[str, Any], kinds: dict[str, Kind]) -> None:
    spent = {name: kernels_ms(kind) for name, kind in kinds.items()}
    row["in_kernels_ms"] = {name: round(sum(taken.values()), 3) for name, taken in spent.items()}
    for name, taken in spent.items():
        if row["ratio"][name] > ALLOWED.get(name, 1e9):
            more = {key: ms - spent["eager"].get(key, 0) for key, ms in taken.items()}
            row[name]["longer_kernels_ms"] = {
                key[:80]: round(ms, 3) for key, ms in sorted(more.items(), key=lambda item: -item[1])[:8]}


def kinds_of(training: Training, share: float, peak: int) -> dict[str, Kind]:
    beside = beside_bytes(training)
    half = int(share * peak) + beside
    kinds = {"eager": Kind(training, training.model._call_impl)}
    reprise.compile(training.model, cuda_graphs=False, planning_seconds=PLANNING_SECONDS)
    kinds["none"] = Kind(training, budget=None, beside=beside)
    kinds["planned"] = Kind(training, budget=half, beside=beside)
    if training.device.type == "cuda":
        kinds["graphs"] = Kind(training, budget=half, beside=beside, graphs=True)
    return kinds


def times_of(name: str, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    begin = time.perf_counter()
    torch.backends.cudnn.benchmark = True
    dtype = options.dtypes
    training = Training(name, dtype, device, tiny=options.cpu)
    eager = Way(training)
    eager.run(WARM_STEPS)
    peak = eager.peak()["peak_bytes"]
    row: dict[str, Any] = {"case": name, "dtype": dtype, "eager_peak_bytes": peak}
    kinds = {kind: made for kind, made in kinds_of(training, options.share, peak).items()
             if kind == "eager" or kind in options.kinds.split(",")}
    for kind in list(kinds):
        try:
            kinds[kind].sample(WARM_STEPS)
            if kind != "eager":
                kinds[kind].note()
        except reprise.RepriseError as error:
            row[f"{kind}_error"] = str(error)
            del kinds[kind]
    row["set_up_seconds"] = round(time.perf_counter() - begin, 1)
    samples = in_turns(kinds, options.samples)
    compared = {kind: times(taken, samples["eager"]) for kind, taken in samples.items()}
    row |= {key: {kind: compared[kind][key] for kind in kinds} for key in ("ms", "spread_ms", "ratio")}
    row |= {kind: made.facts for kind, made in kinds.items() if kind != "eager"}
    if device.type == "cuda":
        compare_kernels(row, kinds)
    row["summary"] = f"{name:<20}{dtype:<6}eager {row['ms']['eager']:8.2f} ms, {peak / 2**30:6.2f} GiB   " + "   ".join(
        f"{kind} {row['ratio'][kind]:.3f} [{row.get('in_kernels_ms', {}).get(kind, 0):.2f} ms in kernels] "
        f"({row[kind]['measured_bytes'] / peak:.0%}, {row[kind]['recompute_percent']} %)"
        for kind in kinds if kind != "eager") + "".join(f"   {k}: {v}" for k, v in row.items() if k.endswith("_error"))
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--kinds", default="none,planned,graphs", help="what is measured besides eager")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.5, help="the budget, as a share of eager's peak")
    parser.add_argument("--cpu", action="store_true", help="tiny networks on the CPU, to try the command")
    parser.add_argument("--one", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "speed-cuda.json")
    options = parser.parse_args()
    device = CPU if options.cpu else GPU
    torch.backends.cudnn.benchmark = True
    if options.one:
        print(json.dumps(times_of(options.one, options, device)))
        return 0
    results = []
    for dtype in options.dtypes.split(","):
        extra = ["--dtypes", dtype, "--kinds", options.kinds, "--samples", str(options.samples), "--share", str(options.share),
                 *(["--cpu"] if options.cpu else [])]
        results += one_process_each(
            __file__, options.cases.split(","), extra, 1,
            lambda rows, before=list(results): write(
                options.output, facts("python bench/gpu/speed.py") | {"results": before + rows}))
    return 0 if all("ms" in r for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
