"""A language model with many words inside one memory, in slices and as others train it; each way in a process of its own.

    scripts/python.sh bench/slices_beside.py [--device cuda] [--model llama-1.2b] [--above 7.8,4] [-o FILE]

Every row has the time of a step as a multiple of eager's in the same process, and the peak with everything that is allocated:

planned           inside the parameters and so many GiB above them (--above), with the share that is recomputed
nothing again     the plan in as many slices that keeps everything: what slices cost by themselves
no budget         as reprise.compile trains without a budget, which cuts nothing
chunks by hand    a loss in 8 chunks, each a checkpoint
linear_cross_entropy   torch's own, where this torch has it
torch.compile     at values of torch._functorch.config.activation_memory_budget (--settings)

A process that takes longer than its limit is stopped, and its rows until then stay. A process that the output file has to its
end is not run again. `--device cpu --model tiny --above 0.0065` tries the command.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import reprise
from reprise import _core

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "bench" / "gpu")]

from children import Children  # noqa: E402
from slices import MODELS, Chunked  # noqa: E402

Row = dict[str, Any]
ROUNDS = 5
SECONDS = {"planned": 70, "others": 20, "torch.compile": 60}  # that a process may take on a GPU


class LinearLoss(nn.Module):
    """A language model whose head and loss are one call of torch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.model.base_model(input_ids=words).last_hidden_state[:, :-1].flatten(0, 1)
        return functional.linear_cross_entropy(hidden, self.model.lm_head.weight, words[:, 1:].flatten())


class Steps:
    """Steps on one batch, with their time and the peak of the allocator."""

    def __init__(self, model: nn.Module, words: torch.Tensor) -> None:
        self.model, self.words = model, words

    def one(self, call: Callable[..., Any]) -> float:
        self.model.zero_grad()
        self._wait()
        begin = time.perf_counter()
        call(self.words).backward()
        self._wait()
        return time.perf_counter() - begin

    def median(self, call: Callable[..., Any]) -> float:
        """The median time of steps after one whose time does not count."""
        return statistics.median([self.one(call) for _ in range(ROUNDS + 1)][1:])

    def peak_bytes(self, call: Callable[..., Any]) -> int | None:
        if not self.words.is_cuda:
            return None
        self.model.zero_grad()
        torch.cuda.reset_peak_memory_stats()
        self.one(call)
        return torch.cuda.max_memory_allocated()

    def _wait(self) -> None:
        if self.words.is_cuda:
            torch.cuda.synchronize()


def planned_row(way: str, steps: Steps, model: nn.Module, eager_s: float) -> Row:
    steps.one(model)
    taken = steps.median(model)
    plan = model.plan
    return {"way": way, "slices": plan.slices, "sliced": plan.sliced, "budget_bytes": plan.budget_bytes,
            "predicted_peak_bytes": plan.peak_bytes, "measured_peak_bytes": plan.measured_peak_bytes,
            "recompute_share": round(plan.recompute_ns / (plan.time_ns - plan.recompute_ns), 4),
            "predicted_ms": plan.time_ns / 1e6, "ms": 1e3 * taken, "time_to_eager": round(taken / eager_s, 4)}


def plan_that_keeps_everything(model: nn.Module) -> str:
    """That of the form in which the step is now, as the text of a file."""
    plan = model.plan
    kept = _core.solve(plan.graph, plan.costs, planner="none").plan
    return str(_core.PlanFile(plan.graph, plan.costs, kept, planner="none", budget_bytes=0).format())


def planned(model: nn.Module, steps: Steps, eager_s: float, options: argparse.Namespace) -> Iterator[Row]:
    parameters = sum(p.nbytes for p in model.parameters())
    reprise.compile(model, cuda_graphs=False, planning_seconds=options.planning)
    yield planned_row("no budget", steps, model, eager_s)
    kept: dict[int, str] = {}
    for above in options.above.split(","):
        budget = parameters + int(float(above) * (1 << 30))
        model.zero_grad()
        model.plan.set_budget(budget)
        try:
            steps.one(model)
        except reprise.InfeasibleBudget as refused:
            yield {"way": f"planned, {above} GiB", "budget_bytes": budget, "smallest_budget_bytes": refused.smallest_budget_bytes}
            continue
        time.sleep(options.planning)  # The search goes on beside the steps.
        yield planned_row(f"planned, {above} GiB", steps, model, eager_s)
        if model.plan.slices > 1:
            kept[model.plan.slices] = plan_that_keeps_everything(model)
    model.plan.set_budget(None)
    for slices, text in kept.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kept.plan.json"
            path.write_text(text)
            model.plan.load(path)
        yield planned_row(f"nothing again, {slices} slices", steps, model, eager_s)


def others(model: nn.Module, steps: Steps, eager_s: float, options: argparse.Namespace) -> Iterator[Row]:
    yield {"way": "eager", "ms": 1e3 * eager_s, "peak_bytes": steps.peak_bytes(model), "time_to_eager": 1.0}
    ways: dict[str, nn.Module] = {"chunks by hand": Chunked(model.model)}
    if hasattr(functional, "linear_cross_entropy"):
        ways["linear_cross_entropy"] = LinearLoss(model.model)
    else:
        yield {"way": "linear_cross_entropy", "missing": f"torch {torch.__version__} has none"}
    for name, way in ways.items():
        taken = steps.median(way)
        yield {"way": name, "ms": 1e3 * taken, "peak_bytes": steps.peak_bytes(way), "time_to_eager": round(taken / eager_s, 4)}


def compiled(model: nn.Module, steps: Steps, eager_s: float, options: argparse.Namespace) -> Iterator[Row]:
    torch._functorch.config.activation_memory_budget = float(options.setting)
    # On the CPU, this backend chooses what is recomputed as torch.compile does, but generates no code.
    call = torch.compile(model, backend="inductor" if options.device == "cuda" else "aot_eager_decomp_partition")
    begin = time.perf_counter()
    steps.one(call)
    compile_s = time.perf_counter() - begin
    taken = steps.median(call)
    yield {"way": f"torch.compile {options.setting}", "ms": 1e3 * taken, "peak_bytes": steps.peak_bytes(call),
           "time_to_eager": round(taken / eager_s, 4), "compile_s": compile_s}


PROCESSES = {"planned": planned, "others": others, "torch.compile": compiled}


def measure(options: argparse.Namespace) -> None:
    """Inside one of the processes."""
    if options.device == "cuda":
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_mem_efficient_sdp(False)  # Neither repeats its own bits in backward.
        torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)
    make_model, make_batch = MODELS[options.model]
    with torch.device(options.device):
        model = make_model().train()
    steps = Steps(model, make_batch().to(options.device))
    eager_s = steps.median(model)
    beside = {"case": options.model, "parameter_bytes": sum(p.nbytes for p in model.parameters())}
    for row in PROCESSES[options.one](model, steps, eager_s, options):
        print(json.dumps(beside | row), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="llama-1.2b", choices=MODELS)
    parser.add_argument("--above", default="7.8,4", help="GiB above the parameters")
    parser.add_argument("--settings", default="0.4", help="of torch.compile's memory budget")
    parser.add_argument("--patience", type=float, default=1.0, help="how many times as long as its limit a process may take")
    parser.add_argument("--planning", type=float, default=2.0, help="seconds of planning")
    parser.add_argument("--one", choices=PROCESSES, help=argparse.SUPPRESS)
    parser.add_argument("--setting", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    if options.one:
        measure(options)
        return 0
    rows: list[Row] = json.loads(options.output.read_text())["rows"] if options.output and options.output.exists() else []
    finished = {row["process"] for row in rows if row.get("finished")}
    rows = [row for row in rows if row["process"] in finished]

    def take(process: str, row: Row) -> None:
        rows.append({"process": process} | row)
        print(json.dumps(rows[-1]), flush=True)
        if options.output:
            options.output.write_text(json.dumps({
                "machine": torch.cuda.get_device_name() if options.device == "cuda" else "cpu", "torch": torch.__version__,
                "rows": rows}, indent=1) + "\n")

    arguments = ["--device", options.device, "--model", options.model, "--above", options.above, "--planning",
                 str(options.planning)]
    works = [("planned", []), ("others", [])]
    works += [("torch.compile", ["--setting", setting]) for setting in options.settings.split(",") if setting]
    with Children(__file__) as children:
        for name, more in works:
            label = " ".join([options.model, name, *more[1:]])
            if label in finished:
                continue
            begin = time.monotonic()
            wrong = children.run([*arguments, "--one", name, *more], options.patience * SECONDS[name], partial(take, label))
            end = {"finished": wrong is None, "seconds": round(time.monotonic() - begin, 1)}
            take(label, end | ({"wrong": wrong} if wrong else {}))
    return 1 if any("wrong" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
