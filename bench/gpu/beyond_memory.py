"""Trains a network whose plain step needs more memory than there is.

    scripts/python.sh bench/gpu/beyond_memory.py [--case resnet152_48] [--limit 6GiB] [-o FILE]

The process may take no more than `--limit` of the card. Plain training runs out of memory there;
with a budget just below the limit, the step is captured, profiled, planned and trained. A second
process without the limit trains the plain step for comparison: the losses must have the same bits.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from common import GPU, ROOT, STEPS, Training, facts

import reprise

STEPS_RUN = 3
BELOW = 0.94  # The budget is this share of the limit; the rest is for memory that the allocator reserves and cannot use.


def set_up() -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True


def losses(training: Training) -> list[str]:
    optimizer = torch.optim.SGD(training.model.parameters(), lr=1e-3)
    found = []
    for _ in range(STEPS_RUN):
        found.append(float(training.step()).hex())
        optimizer.step()
    return found


def plain(name: str) -> dict[str, Any]:
    training = Training(name, "fp32", GPU)
    torch.cuda.reset_peak_memory_stats()
    return {"losses": losses(training), "peak_bytes": torch.cuda.max_memory_allocated()}


def limited(name: str, limit: int) -> dict[str, Any]:
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(GPU).total_memory, GPU)
    training = Training(name, "fp32", GPU)
    found: dict[str, Any] = {"plain_fails": False}
    try:
        training.step()
    except torch.cuda.OutOfMemoryError:
        found["plain_fails"] = True
    training = None  # type: ignore[assignment]
    torch.cuda.empty_cache()
    training = Training(name, "fp32", GPU)
    reprise.compile(training.model, int(BELOW * limit), cuda_graphs=False)
    found["losses"] = losses(training)
    plan = training.model.plan
    return found | {
        "budget_bytes": plan.budget_bytes, "predicted_bytes": plan.peak_bytes,
        "measured_bytes": plan.measured_peak_bytes, "reserved_bytes": torch.cuda.max_memory_reserved(),
        "recompute_percent": round(100 * plan.recompute_ns / plan.time_ns, 2)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=STEPS, default="resnet152_48")
    parser.add_argument("--limit", default="4GiB")
    parser.add_argument("--run", choices=("plain", "limited"), help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "beyond-memory-cuda.json")
    options = parser.parse_args()
    limit = reprise.parse_bytes(options.limit)
    set_up()
    if options.run:
        print(json.dumps(plain(options.case) if options.run == "plain" else limited(options.case, limit)))
        return 0
    found = {}
    for run in ("plain", "limited"):
        done = subprocess.run([sys.executable, __file__, "--case", options.case, "--limit", options.limit, "--run", run],
                              stdout=subprocess.PIPE, text=True, check=True)
        found[run] = json.loads(done.stdout.splitlines()[-1])
    same = found["plain"]["losses"] == found["limited"]["losses"]
    fits = found["limited"]["reserved_bytes"] <= limit
    options.output.write_text(json.dumps(facts("python bench/gpu/beyond_memory.py") | {
        "case": options.case, "limit_bytes": limit, "same_losses": same, **found}, indent=1) + "\n")
    print(f"{options.case}: plain needs {found['plain']['peak_bytes'] / 2**30:.2f} GiB, "
          f"{'fails' if found['limited']['plain_fails'] else 'runs'} inside {options.limit}; planned for "
          f"{found['limited']['budget_bytes'] / 2**30:.2f} GiB, allocated {found['limited']['measured_bytes'] / 2**30:.2f}, "
          f"reserved {found['limited']['reserved_bytes'] / 2**30:.2f} GiB, recomputation "
          f"{found['limited']['recompute_percent']} %; losses {'the same bits' if same else 'DIFFER'}")
    return 0 if same and fits and found["limited"]["plain_fails"] else 1


if __name__ == "__main__":
    sys.exit(main())
