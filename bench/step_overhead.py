"""Compares the time of a step with plan `none` with eager PyTorch's, and measures profiling and planning, on the CPU.

    scripts/python.sh bench/step_overhead.py [--steps 15] [-o FILE]

Eager and planned steps are interleaved in one process, and the medians of both are compared. Each network runs in two processes
that share a cache folder of their own: the first one profiles and plans, the second one finds the results in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("resnet50", "gpt2")


def make(name: str):  # type: ignore[no-untyped-def]
    import torch
    from models import huggingface as hf
    from models.resnet import ResNet

    if name == "resnet50":
        return ResNet(50), (torch.randn(8, 3, 96, 96),), {"classes": 1000}
    return hf.gpt2(6, 384, 5000, 256), (torch.randint(5000, (4, 256)),), {}


def loss_of(output, name: str):  # type: ignore[no-untyped-def]
    import torch

    logits = output if name == "resnet50" else output.logits.flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, torch.arange(logits.shape[0]) % logits.shape[1])


def run(name: str, steps: int, share: float) -> dict[str, object]:
    import torch

    import reprise
    import reprise.planning

    torch.manual_seed(0)
    model, args, _ = make(name)
    model.train()
    plain = model._call_impl
    begin = time.perf_counter()
    reprise.compile(model)

    def step(call) -> float:  # type: ignore[no-untyped-def]
        model.zero_grad()
        begin = time.perf_counter()
        loss_of(call(*args), name).backward()
        return time.perf_counter() - begin

    first = step(model)
    times: dict[str, list[float]] = {"eager": [], "none": []}
    for _ in range(steps):
        times["eager"].append(step(plain))
        times["none"].append(step(model))
    plan = model.plan
    budget = int(share * plan.peak_bytes)
    found = reprise.planning.find(plan.graph, plan.costs, budget - plan.outside_bytes, "auto", 10.0)
    medians = {kind: statistics.median(values[2:]) for kind, values in times.items()}
    return {
        "case": name, "ops": plan.graph.num_ops, "eager_ms": 1e3 * medians["eager"],
        "none_ms": 1e3 * medians["none"], "ratio": medians["none"] / medians["eager"],
        "first_step_s": first, "profile_s": plan.profile_seconds, "share": share,
        "planning_s": found.seconds, "planner": found.planner, "since_compile_s": time.perf_counter() - begin,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--share", type=float, default=0.7, help="the budget to plan for, as a share of the peak")
    parser.add_argument("--case", help="run only this case, in this process, and print JSON")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "step-overhead-cpu.json")
    options = parser.parse_args()
    if options.case:
        sys.path.insert(0, str(ROOT))
        print(json.dumps(run(options.case, options.steps, options.share)))
        return 0
    results = []
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            for attempt in ("first", "second"):
                command = [sys.executable, __file__, "--case", name, "--steps", str(options.steps)]
                done = subprocess.run(command, env={**os.environ, "REPRISE_CACHE_DIR": folder},
                                      stdout=subprocess.PIPE, check=True, text=True)
                result = {"run": attempt, **json.loads(done.stdout.splitlines()[-1])}
                results.append(result)
                print(f"{name:<10}{attempt:<8}eager {result['eager_ms']:8.1f} ms   none {result['none_ms']:8.1f} ms   "
                      f"ratio {result['ratio']:.3f}   profiling {result['profile_s']:.2f} s   "
                      f"planning {result['planning_s']:.2f} s", flush=True)
    import torch

    options.output.write_text(json.dumps({
        "command": "python bench/step_overhead.py", "machine": platform.machine(), "cores": os.cpu_count(),
        "python": platform.python_version(), "torch": torch.__version__, "results": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
