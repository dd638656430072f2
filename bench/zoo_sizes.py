"""Trains every small network of models/zoo.py at five batch sizes, and compares each size with a capture made there.

    scripts/python.sh bench/zoo_sizes.py [--cases resnet50,hf_gpt2] [-o bench/results/zoo-sizes-cpu.json]

For each network: how many of the five sizes were captured by themselves, how many are sizes of a step that was known
(members), how many members differ from a capture at that size in any call or number, and at how many sizes loss, gradients
or buffers differ from eager's.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import reprise
from reprise.trace.step_capture import capture_step

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from models.zoo import CASES, Case

SIZES = (17, 20, 18, 23, 29)  # the CPU has another convolution for fewer than 16 images


def results_of(case: Case, model: nn.Module, batch: int) -> list[Tensor]:
    args, kwargs = case.make_inputs(batch)
    model.zero_grad()
    torch.manual_seed(1)
    loss = case.loss(model(*args, **kwargs))
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *(b.clone() for b in model.buffers())]


def difference(case: Case, model: nn.Module, plain: nn.Module, batch: int) -> str | None:
    """Between the program that has just run and a capture at this size."""
    args, kwargs = case.make_inputs(batch)
    captured = capture_step(plain, args, kwargs, type(plain).__name__)
    found: str | None = model.plan.program.difference(captured.captured.program)
    return found


def measure(case: Case) -> dict[str, Any]:
    torch.manual_seed(0)
    plain = case.make_model().train()
    model = reprise.compile(copy.deepcopy(plain))
    row: dict[str, Any] = {"case": case.name, "alone": 0, "members": 0, "different_members": [], "other_bits": []}
    for batch in SIZES:
        found = results_of(case, model, batch)
        expected = results_of(case, plain, batch)
        if any(not torch.equal(a, b) for a, b in zip(found, expected, strict=True)):
            row["other_bits"].append(batch)
        if not model.plan.made_for_any_size:
            row["alone"] += 1
            continue
        row["members"] += 1
        if (other := difference(case, model, plain, batch)) is not None:
            row["different_members"].append([batch, other])
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.cases.split(","):
        rows.append(measure(CASES[name]))
        torch._dynamo.reset()
        print(json.dumps(rows[-1]), flush=True)
        if options.output:
            options.output.write_text(json.dumps({
                "command": "scripts/python.sh bench/zoo_sizes.py", "machine": platform.machine(), "sizes": SIZES,
                "threads": torch.get_num_threads(), "python": platform.python_version(), "torch": torch.__version__,
                "results": rows}, indent=1) + "\n")
    return 0 if all(not row["different_members"] and not row["other_bits"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
