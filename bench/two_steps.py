"""Times a case from reprise.compile, or torch.compile, to the end of its second step, in this process.

Nothing of Reprise and of torch.compile is imported with this module, so that the time of importing them can be counted.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from models import huggingface as hf
from models.recurrent import UnrolledLanguageModel
from models.zoo import CASES, FULL_CASES, NEXT_TOKEN, Case, registry, square, tokens

CLOCKS = {"wall": time.perf_counter, "processor": time.thread_time}
BEGINS = ("compile", "import")
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


def budget_of(case: Case, device: torch.device, share: float) -> int:
    """That share of the peak of a plain step. In the first step, libraries allocate memory that they keep."""
    from preflight_check import fresh_model, peak_of_step

    from reprise import memory

    memory.install_meter()
    model = fresh_model(case, device)
    peak_of_step(model, case, case.batch, device)
    return int(share * peak_of_step(model, case, case.batch, device))


def run(case: Case, device: torch.device, budget: int, way: Way, clock: str = "wall", begins: str = "compile") -> Row:
    """One row. The clock begins when everything is imported, or when nothing of torch.compile is that the model and a plain
    step have not imported."""
    os.environ["REPRISE_CLOCK"] = clock
    torch.manual_seed(0)
    model = case.make_model().train().to(device)
    step(case, device, model)
    option, name = way
    os.environ["REPRISE_KEEP_TRACES"] = str(int(option == "engine"))
    row: Row = {"case": case.name, "device": device.type, "begins": begins}

    def compiled() -> Any:
        if option == "rival":
            return torch.compile(model, backend=name)
        import reprise

        return reprise.compile(model, budget, engine=name)

    if begins == "compile":
        import_all()
    row["imported_before"] = [module for module in ("transformers", "torch._dynamo") if module in sys.modules]
    found = two_steps(case, device, compiled, CLOCKS[clock])
    if option == "rival":
        return row | {"way": "torch.compile", "backend": name} | found
    way = "reprise" if option == "engine" else "reprise, traced"
    return row | {"way": way, "engine": name, "budget_bytes": budget} | found | planned(model.plan, found)


def import_all() -> None:
    """What reprise.compile imports, and what is imported at the first optimizer that anybody makes."""
    import reprise

    _ = reprise.compile
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def step(case: Case, device: torch.device, model: torch.nn.Module) -> None:
    args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to(device), case.make_inputs(case.batch))
    case.loss(model(*args, **kwargs)).backward()
    model.zero_grad(set_to_none=True)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def two_steps(case: Case, device: torch.device, compiled: Callable[[], Any], clock: Callable[[], float]) -> Row:
    args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to(device), case.make_inputs(case.batch))
    begin = clock()
    call = compiled()
    imported = clock() - begin
    seconds = []
    for _ in range(2):
        call.zero_grad(set_to_none=True)
        case.loss(call(*args, **kwargs)).backward()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(clock() - begin)
    return {"first_s": seconds[0], "second_s": seconds[1], "phases": {"importing": imported}, "rest_s": seconds[1] - imported}


def planned(plan: Any, found: Row) -> Row:
    spent = found["phases"] | plan.preparation_seconds
    return {"ops": plan.graph.num_ops, "recomputation": plan.recompute_ns / (plan.time_ns - plan.recompute_ns),
            "phases": {phase: spent.get(phase, 0.0) for phase in PHASES}, "rest_s": found["second_s"] - sum(spent.values())}
