"""Times a case from reprise.compile, or torch.compile, to the end of its second step, in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
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
from reprise import memory, switches

PHASES = ("importing", "tracing", "joint graph", "lowering", "capturing", "profiling", "planning", "first forward")
Row = dict[str, Any]
Way = tuple[str, str]  # the option that asks for it, and its value


def cases(on_gpu: bool) -> dict[str, Case]:
    """The networks of the zoo, and some that only this benchmark uses."""
    resnet50 = FULL_CASES["resnet50"]
    return (FULL_CASES if on_gpu else CASES) | registry(
        Case("gpt2_medium", 8, partial(hf.gpt2, 24, 1024), tokens(50257, 1024), lambda output: NEXT_TOKEN(output.logits)),
        # As many layers as gpt2_medium, in a form that a CPU can run.
        Case("gpt2_thin", 2, partial(hf.gpt2, 24, 64, 1000, 64), tokens(1000, 64), lambda output: NEXT_TOKEN(output.logits)),
        Case("unrolled", 4, partial(UnrolledLanguageModel, 64, 32), tokens(64, 256), NEXT_TOKEN),  # about 20,000 calls
        Case("resnet50_96", 32, resnet50.make_model, square(96), resnet50.loss))


def run(case: Case, device: torch.device, share: float, way: Way, clock: str = "wall") -> Row:
    os.environ["REPRISE_CLOCK"] = clock
    memory.install_meter()
    model = fresh_model(case, device)
    peak_of_step(model, case, case.batch, device)  # In the first step, libraries allocate memory that they keep.
    budget = int(share * peak_of_step(model, case, case.batch, device))
    row = {"case": case.name, "device": device.type}
    option, name = way
    if option == "rival":
        return row | {"way": "torch.compile", "backend": name} | two_steps(
            case, device, model, lambda: torch.compile(model, backend=name))
    os.environ["REPRISE_KEEP_TRACES"] = str(int(option == "engine"))
    found = two_steps(case, device, model, lambda: reprise.compile(model, budget, engine=name))
    way = "reprise" if option == "engine" else "reprise, traced"
    return row | {"way": way, "engine": name, "budget_bytes": budget} | found | planned(model.plan, found)


def two_steps(case: Case, device: torch.device, model: torch.nn.Module, compiled: Callable[[], Any]) -> Row:
    args, kwargs = inputs_at(case, case.batch, device)
    clock = switches.clock()
    begin = clock()
    call = compiled()
    imported = clock() - begin
    seconds = []
    for _ in range(2):
        model.zero_grad(set_to_none=True)
        case.loss(call(*args, **kwargs)).backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(clock() - begin)
    return {"first_s": seconds[0], "second_s": seconds[1], "phases": {"importing": imported}, "rest_s": seconds[1] - imported}


def planned(plan: Any, found: Row) -> Row:
    spent = found["phases"] | plan.preparation_seconds
    return {"ops": plan.graph.num_ops, "recomputation": plan.recompute_ns / (plan.time_ns - plan.recompute_ns),
            "phases": {phase: spent.get(phase, 0.0) for phase in PHASES}, "rest_s": found["second_s"] - sum(spent.values())}
