"""Time of a step against eager PyTorch, in one process, steps in turns.

    python bench/gpu/speed.py [--cases resnet50_96,...] [--dtypes fp32,bf16] [--steps 12] [-o FILE]

eager       the model as it is
none        captured, without recomputation
planned     at half of eager's peak, without CUDA graphs
graphs      at half of eager's peak, as CUDA graphs: their pool and all beside it

cudnn.benchmark is on. Times are from before forward to after backward, with the device idle at
both ends; the median of each kind is compared with eager's.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from common import CPU, GPU, ROOT, STEPS, Training, facts, one_process_each, write

CASES = ("resnet50_96", "resnet152_48", "densenet161_32", "vgg19_64", "gpt2_medium_8x1024")
WARM_STEPS = 4


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_of_eager(training: Training) -> int:
    from reprise.native import _torch

    for _ in range(WARM_STEPS):
        training.step()
    training.model.zero_grad(set_to_none=True)
    _torch.reset_peak(training.device)
    training.step()
    training.model.zero_grad(set_to_none=True)
    return _torch.peak_bytes(training.device)


def times_of(name: str, dtype: str, steps: int, share: float, device: torch.device, tiny: bool) -> dict[str, Any]:
    import reprise
    from reprise.native import _torch

    torch.backends.cudnn.benchmark = True
    training = Training(name, dtype, device, tiny=tiny)
    _torch.install_meter()
    begin = _torch.allocated_bytes(device)
    peak = peak_of_eager(training) - (begin if device.type == "cpu" else 0)
    row: dict[str, Any] = {"case": name, "dtype": dtype, "eager_peak_bytes": peak}
    kinds: dict[str, tuple[Training, Any]] = {}
    plain = training.model._call_impl
    kinds["eager"] = (training, plain)
    for kind in ("planned", "graphs"):
        twin = copy.copy(training)
        twin.model = copy.deepcopy(training.model)
        gc.collect()
        beside = _torch.allocated_bytes(device) - sum(
            _torch.granted_bytes(device, t.untyped_storage().nbytes())
            for t in (*twin.model.parameters(), *twin.model.buffers(), *twin.args, *twin.kwargs.values()))
        budget = int(share * peak) + max(0, beside)
        reprise.compile(twin.model, budget, cuda_graphs=kind == "graphs")
        row[f"{kind}_beside_bytes"] = beside
        if not attempt(twin, kind, row):
            continue
        kinds[kind] = (twin, twin.model)
    reprise.compile(training.model, cuda_graphs=False)
    for _ in range(WARM_STEPS):
        training.step()
    kinds["none"] = (training, training.model)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(steps):
        for kind, (owner, call) in kinds.items():
            owner.model.zero_grad(set_to_none=True)
            synchronize(device)
            begin_time = time.perf_counter()
            owner.step(call)
            synchronize(device)
            times[kind].append(1e3 * (time.perf_counter() - begin_time))
            owner.model.zero_grad(set_to_none=True)
    row["ms"] = {kind: round(statistics.median(values), 3) for kind, values in times.items()}
    row["spread_ms"] = {kind: [round(min(values), 3), round(max(values), 3)] for kind, values in times.items()}
    row["ratio"] = {kind: round(value / row["ms"]["eager"], 4) for kind, value in row["ms"].items()}
    for kind, (owner, _) in kinds.items():
        if kind == "eager":
            continue
        plan = owner.model.plan
        row[kind] = {"predicted_bytes": plan.peak_bytes - row.get(f"{kind}_beside_bytes", 0),
                     "measured_bytes": plan.measured_peak_bytes - row.get(f"{kind}_beside_bytes", 0),
                     "recompute_percent": round(100 * plan.recompute_ns / max(1, plan.time_ns), 2),
                     "kernels_ms": round(plan.time_ns / 1e6, 3),
                     "planning_seconds": round(plan.region.planning_seconds, 2),
                     "profile_seconds": round(plan.region.profile_seconds, 2)}
    row["summary"] = f"{name:<20}{dtype:<6}eager {row['ms']['eager']:8.2f} ms, {peak / 2**30:6.2f} GiB   " + "   ".join(
        f"{kind} {row['ratio'][kind]:.3f} ({row[kind]['measured_bytes'] / peak:.0%})" for kind in kinds if kind != "eager")
    return row


def attempt(training: Training, kind: str, row: dict[str, Any]) -> bool:
    import reprise

    try:
        for _ in range(WARM_STEPS + 2):
            training.step()
    except reprise.RepriseError as error:
        row[f"{kind}_error"] = str(error)
        reprise.restore(training.model)
        training.model.zero_grad(set_to_none=True)
        return False
    graphs = training.model.plan.region.graphs
    if kind == "graphs" and graphs is not None and graphs.recorded is not None:
        row["pool_bytes"] = graphs.recorded.pool_reserved_bytes
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--share", type=float, default=0.5, help="of eager's peak")
    parser.add_argument("--cpu", action="store_true", help="tiny networks on the CPU, to try the command")
    parser.add_argument("--one", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "speed-cuda.json")
    options = parser.parse_args()
    device = CPU if options.cpu else GPU
    if options.one:
        print(json.dumps(times_of(options.one, options.dtypes, options.steps, options.share, device, options.cpu)))
        return 0
    results = []
    for dtype in options.dtypes.split(","):
        extra = ["--dtypes", dtype, "--steps", str(options.steps), "--share", str(options.share),
                 *(["--cpu"] if options.cpu else [])]
        results += one_process_each(__file__, options.cases.split(","), extra, jobs=1)
        torch.backends.cudnn.benchmark = True
        write(options.output, facts("python bench/gpu/speed.py") | {"results": results})
    return 0 if all("ms" in r for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
