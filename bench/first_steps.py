"""Where the time goes from reprise.compile to the end of the second step, with empty and with full caches.

    scripts/python.sh bench/first_steps.py [--device cuda] [--cases resnet50,unrolled] [--share 0.5] [-o FILE]

Each case runs in two processes that share a cache folder of their own: the first one has to measure and to plan, the second
one finds the results in the cache. "Importing" is the time of importing torch.compile's own modules, if nothing has imported
them before. "Rest" is what is not preparation: the two steps themselves, and torch's guards.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from models import huggingface as hf
from models.recurrent import UnrolledLanguageModel
from models.zoo import CASES, FULL_CASES, NEXT_TOKEN, Case, registry, square, tokens
from preflight_check import fresh_model, inputs_at, peak_of_step

import reprise
from reprise.native import _torch

PHASES = ("importing", "tracing", "joint graph", "lowering", "capturing", "profiling", "planning", "first forward")


def cases(on_gpu: bool) -> dict[str, Case]:
    """The networks of the zoo, and some that only this script uses."""
    resnet50 = FULL_CASES["resnet50"]
    return (FULL_CASES if on_gpu else CASES) | registry(
        Case("gpt2_medium", 8, partial(hf.gpt2, 24, 1024), tokens(50257, 1024), lambda output: NEXT_TOKEN(output.logits)),
        Case("unrolled", 4, partial(UnrolledLanguageModel, 64, 32), tokens(64, 256), NEXT_TOKEN),  # about 20,000 calls
        Case("resnet50_96", 32, resnet50.make_model, square(96), resnet50.loss))


def run(case: Case, device: torch.device, share: float) -> dict[str, Any]:
    _torch.install_meter()
    model = fresh_model(case, device)
    args, kwargs = inputs_at(case, case.batch, device)
    peak_of_step(model, case, case.batch, device)  # In the first step, libraries allocate memory that they keep.
    budget = int(share * peak_of_step(model, case, case.batch, device))
    begin = time.perf_counter()
    reprise.compile(model, budget)
    imported = time.perf_counter() - begin
    seconds = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        case.loss(model(*args, **kwargs)).backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begin)
    plan = model.plan
    spent = {"importing": imported, **plan.preparation_seconds}
    return {"case": case.name, "device": device.type, "ops": plan.graph.num_ops, "budget_bytes": budget, "first_s": seconds[0],
            "second_s": seconds[1], "recomputation": plan.recompute_ns / (plan.time_ns - plan.recompute_ns),
            "phases": {phase: spent.get(phase, 0.0) for phase in PHASES}, "rest_s": seconds[1] - sum(spent.values())}


def row_text(row: dict[str, Any]) -> str:
    phases = "".join(f"{row['phases'][phase]:>{len(phase) + 2}.2f}" for phase in PHASES)
    return f"{row['case']:<14}{row['caches']:<6}{row['ops']:>6}{row['second_s']:>8.1f}{phases}{row['rest_s']:>7.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--cases", help="by default resnet50 and gpt2_medium on a GPU, and resnet50_96 on the CPU")
    parser.add_argument("--share", type=float, default=0.5, help="the budget, as a share of a plain step's peak")
    parser.add_argument("--case", help="run only this case, in this process, and print JSON")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    on_gpu = options.device.type == "cuda"
    options.cases = options.cases or ("resnet50,gpt2_medium" if on_gpu else "resnet50_96")
    if options.case:
        case = cases(on_gpu)[options.case]
        print(json.dumps(run(case, options.device, options.share)))
        return 0
    print(f"{'case':<14}{'cache':<6}{'ops':>6}{'total':>8}" + "".join(f"  {phase}" for phase in PHASES) + "   rest", flush=True)
    rows = []
    for name in options.cases.split(","):
        command = [sys.executable, __file__, "--case", name, "--device", str(options.device), "--share", str(options.share)]
        with tempfile.TemporaryDirectory() as folder:
            for caches in ("empty", "full"):
                done = subprocess.run(command, env={**os.environ, "REPRISE_CACHE_DIR": folder},
                                      stdout=subprocess.PIPE, check=True, text=True)
                rows.append({"caches": caches, **json.loads(done.stdout.splitlines()[-1])})
                print(row_text(rows[-1]), flush=True)
    if options.output:
        machine = torch.cuda.get_device_name(options.device) if on_gpu else platform.machine()
        options.output.write_text(json.dumps({
            "command": f"python bench/first_steps.py --device {options.device} --cases {options.cases}", "machine": machine,
            "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__, "results": rows},
            indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
