"""Compares the largest batches that reprise.preflight predicts with real training.

    scripts/python.sh bench/preflight_check.py [--device cuda] [--cases unet,hf_gpt2] [--profile known] [-o FILE]

Each network first trains a step at its own batch size and at twice that size, so that its operators are known. Then preflight
is asked about a budget of several times the plain peak. The truth is found by training, plain in eager PyTorch and planned by
reprise.compile, at batch sizes closer and closer to the largest that stays inside. The output also shows what preflight says if
nothing was ever measured. The check fails if a prediction is off by more than 3 %.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from models.zoo import CASES, FULL_CASES, Case

import reprise
from reprise import memory

ALLOWED = 0.03
PLANNING_SECONDS = 60.0  # More than planning takes, so that the planner's work limits it and not the clock.
# The budget of each network, as a multiple of the plain peak at its own batch size. The batch sizes that fit must be so large
# that 3 % of them are at least one.
CPU_CASES = {"dropout_mlp": 24, "hf_gpt2": 20, "unet": 24, "vgg19": 16}
CUDA_CASES = {"resnet50": 3, "hf_gpt2": 3, "vgg19": 3, "unet": 5, "dropout_transformer": 2}


def inputs_at(case: Case, batch: int, device: torch.device) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.to(device), case.make_inputs(batch))


def peak_of_step(model: torch.nn.Module, case: Case, batch: int, device: torch.device) -> int:
    """The bytes that are allocated on the device at the highest instant of one step."""
    args, kwargs = inputs_at(case, batch, device)
    model.zero_grad(set_to_none=True)
    every = tree_leaves([*model.parameters(), *model.buffers(), args, kwargs])
    there = memory.storage_bytes([leaf for leaf in every if isinstance(leaf, torch.Tensor)], device)
    memory.reset_peak(device)
    entry = memory.allocated_bytes(device)
    output = model(*args, **kwargs)
    loss = case.loss(output)
    loss.backward()
    peak = memory.peak_bytes(device)
    model.zero_grad(set_to_none=True)
    return there + peak - entry if device.type == "cpu" else peak


def fresh_model(case: Case, device: torch.device) -> torch.nn.Module:
    """A new model. It first collects what is left of the one before, which torch.compile keeps in reference cycles."""
    gc.collect()
    torch.manual_seed(0)
    return case.make_model().train().to(device)


def fits_plain(case: Case, batch: int, budget: int, device: torch.device) -> bool:
    try:
        return peak_of_step(fresh_model(case, device), case, batch, device) <= budget
    except torch.OutOfMemoryError:
        return False


def fits_planned(case: Case, batch: int, budget: int, device: torch.device) -> bool:
    model = reprise.compile(fresh_model(case, device), budget, planning_seconds=PLANNING_SECONDS)
    try:
        for _ in range(2):
            peak_of_step(model, case, batch, device)
            if model.plan.measured_peak_bytes > budget:
                return False
    except (reprise.InfeasibleBudget, reprise.BudgetExceeded):
        return False
    finally:
        torch._dynamo.reset()
    return True


def true_largest(fits: Callable[[int], bool], near: int) -> int:
    """The largest batch size that fits, or 0 if none does. The search starts at `near`, moves away from it in steps that
    double, and then bisects."""
    low, high, reach, guess = 0, 0, max(1, near // 50), near
    while not high or high - low > 1:
        low, high = (guess, high) if fits(guess) else (low, guess)
        if low and high:
            guess = (low + high) // 2
        else:
            guess = low + reach if low else max(1, high - reach)
            reach *= 2
    return low


def check(case: Case, multiple: float, device: torch.device, profile: str) -> dict[str, Any]:
    model = fresh_model(case, device)
    batch = max(case.batch, 4)
    inputs = inputs_at(case, batch, device)
    budget = int(multiple * peak_of_step(model, case, batch, device))
    blind = reprise.preflight(model, inputs, budget, profile="roofline", planning_seconds=PLANNING_SECONDS)
    for size in (batch, 2 * batch):  # Training at two sizes makes the operators known.
        peak_of_step(reprise.compile(model), case, size, device)
        torch._dynamo.reset()
    reprise.restore(model)
    begin = time.monotonic()
    found = reprise.preflight(model, inputs, budget, profile=profile, planning_seconds=PLANNING_SECONDS)
    seconds = time.monotonic() - begin
    del model
    row: dict[str, Any] = {"case": case.name, "batch": batch, "budget_bytes": budget,
                           "preflight_seconds": round(seconds, 1)}
    for kind, fits in (("plain", fits_plain), ("planned", fits_planned)):
        predicted = getattr(found, f"largest_{kind}").batch
        truth = true_largest(lambda n, fits=fits: fits(case, n, budget, device), predicted)
        row[kind] = {"predicted": predicted, "true": truth, "off": round(predicted / truth - 1, 4),
                     "never_measured": getattr(blind, f"largest_{kind}").batch}
    return row


def machine(device: torch.device) -> dict[str, Any]:
    """What numbers depend on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__, "reprise": reprise.__version__}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", help="names, with commas between them")
    parser.add_argument("--profile", default="known", choices=("known", "measure"))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    multiples = CPU_CASES if device.type == "cpu" else CUDA_CASES
    cases = CASES if device.type == "cpu" else FULL_CASES
    memory.install_meter()
    rows = []
    print(f"{'':<22}{'':<9}{'predicted':>10}{'true':>8}{'off':>9}   never measured", flush=True)
    for case in (options.cases.split(",") if options.cases else multiples):
        rows.append(check(cases[case], multiples.get(case, 4), device, options.profile))
        for kind in ("plain", "planned"):
            found = rows[-1][kind]
            print(f"{case:<22}{kind:<9}{found['predicted']:>10}{found['true']:>8}{100 * found['off']:>7.1f} %"
                  f"{found['never_measured']:>12}", flush=True)
        if options.output:  # Written after every network, because one may take many minutes.
            options.output.write_text(json.dumps({**machine(device), "profile": options.profile, "rows": rows}, indent=1) + "\n")
    return 0 if all(abs(row[kind]["off"]) <= ALLOWED for row in rows for kind in ("plain", "planned")) else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:  # An empty cache, so that nothing is known beforehand.
        os.environ["REPRISE_CACHE_DIR"] = folder
        sys.exit(main())
