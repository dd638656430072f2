"""What the online mode costs on the CPU: a call, a step without pressure, and recomputation at budgets beside planner `auto`.

    scripts/python.sh bench/online_mode.py [--samples 15] [-o FILE]

Calls and steps with and without the mode are interleaved in one process with one thread, and the medians of the processor's time
are compared, which other processes disturb less than the clock. Shares are of the memory that the step takes above what is there
before it. Recomputation of the online mode is the time that repeated calls took when they were first made, by the time of all
first calls: by rule (`online_percent`), and in steps that follow a plan (`followed_percent`, the median of three after two that
learn). That of `auto` is what its plan predicts for the captured step (`auto_percent`), and what it would be if backward had to
run in the order in which the program runs it, as it does online (`auto_in_order_percent`; needs the command `reprise`).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from models import huggingface as hf  # noqa: E402
from models.resnet import ResNet  # noqa: E402

import reprise  # noqa: E402
from reprise import _core  # noqa: E402
from reprise.native import _torch  # noqa: E402

CPU = torch.device("cpu")
SHARES = (80, 60, 50)
CALLS = 10_000
COMMAND = ROOT / "build" / "release" / "tools" / "reprise"


def seconds(run: Callable[[], Any], times: int = 1) -> float:
    begin = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - begin) / times


def interleaved(run: Callable[[], Any], samples: int, times: int = 1) -> tuple[float, float]:
    """The medians without and with the mode."""
    plain, within = [], []
    for _ in range(samples):
        plain.append(seconds(run, times))
        with reprise.online("64GiB"):
            run()
            within.append(seconds(run, times))
    return statistics.median(plain), statistics.median(within)


def call_rows(samples: int) -> list[dict]:
    small, large = torch.randn(4, 4), torch.randn(128, 64)
    kinds = {"16 elements": lambda: small.add(1.0), "32 KiB": lambda: large.add(1.0),
             "32 KiB in place": lambda: large.add_(1.0), "a view": lambda: large.view(-1)}
    rows = []
    for name, run in kinds.items():
        plain, within = interleaved(run, samples, CALLS)
        rows.append({"call": name, "plain_us": round(1e6 * plain, 3), "online_us": round(1e6 * within, 3),
                     "overhead_us": round(1e6 * (within - plain), 3)})
        print(rows[-1], flush=True)
    return rows


def gpt2() -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    torch.manual_seed(0)
    tokens = torch.randint(5000, (4, 256))
    return hf.gpt2(6, 384, 5000, 256).train(), lambda model: model(tokens).logits


def resnet50() -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    torch.manual_seed(0)
    images = torch.randn(16, 3, 96, 96)
    return ResNet(50).train(), lambda model: model(images)


NETWORKS = {"gpt2": gpt2, "resnet50": resnet50}


def step(model: nn.Module, forward: Callable[[nn.Module], Any]) -> None:
    model.zero_grad()
    logits = forward(model)
    logits = logits.flatten(0, -2)
    nn.functional.cross_entropy(logits, torch.arange(logits.shape[0]) % logits.shape[1]).backward()


def network_rows(name: str, samples: int) -> dict:
    model, forward = NETWORKS[name]()
    step(model, forward)
    plain, within = interleaved(lambda: step(model, forward), samples)
    row: dict[str, Any] = {"network": name, "plain_ms": round(1e3 * plain, 2), "online_ms": round(1e3 * within, 2),
                           "ratio": round(within / plain, 4), "shares": []}
    print({key: value for key, value in row.items() if key != "shares"}, flush=True)
    model.zero_grad()
    before = _torch.allocated_bytes(CPU)
    _torch.reset_peak(CPU)
    step(model, forward)
    above = _torch.peak_bytes(CPU) - before
    for share in SHARES:
        row["shares"].append(share_row(model, forward, share, above))
        print(name, row["shares"][-1], flush=True)
    return row


def share_row(model: nn.Module, forward: Callable[[nn.Module], Any], share: int, above: int) -> dict:
    model.zero_grad()
    budget = _torch.allocated_bytes(CPU) + above * share // 100
    made: dict[str, Any] = {"share": share}
    try:
        with reprise.online(budget, most_recomputation=None, planning_seconds=0) as mode:
            step(model, forward)
            summary = mode.summary
        made |= {"online_percent": round(100 * summary.recompute_ns / summary.call_ns, 2),
                 "evictions": summary.evictions, "repeated_calls": summary.repeated_calls,
                 "inside": summary.peak_bytes <= budget}
    except reprise.BudgetExceeded:
        made["online_percent"] = None
    made |= followed(model, forward, budget)
    model.zero_grad()
    # A plan's budget counts what belongs to the model, and not what else the process has.
    own = _torch.storage_bytes([*model.parameters(), *model.buffers()], CPU)
    try:
        reprise.compile(model, own + above * share // 100, capture="graph")
        step(model, forward)
        plan = model.plan
        made["auto_percent"] = round(100 * plan.recompute_ns / (plan.time_ns - plan.recompute_ns), 2)
        made["auto_in_order_percent"] = in_order(plan)
    except reprise.InfeasibleBudget as error:
        made |= {"auto_percent": None, "auto_smallest_share": round(100 * (error.smallest_budget_bytes - own) / above, 1)}
    reprise.restore(model)
    return made


def in_order(plan: Any) -> float | None:
    """What `auto` recomputes within the same budget if it may not move calls of backward."""
    with tempfile.TemporaryDirectory() as folder:
        graph, found = Path(folder) / "step.graph.json", Path(folder) / "step.plan.json"
        graph.write_text(_core.format_graph(plan.graph, plan.costs))
        budget = str(plan.at_work.room_bytes)
        ended = subprocess.run([COMMAND, "plan", graph, "--budget", budget, "--without", "reordering", "-o", found],
                               capture_output=True, text=True, check=False)
        if ended.returncode == 1:
            return None
        ended.check_returncode()
        made = _core.simulate(plan.graph, plan.costs, _core.parse_plan(found.read_text(), str(found)).plan)
    return round(100 * made.recompute_ns / (made.time_ns - made.recompute_ns), 2)


def followed(model: nn.Module, forward: Callable[[nn.Module], Any], budget: int) -> dict:
    """What steps recompute that follow the plan of an earlier one."""
    model.zero_grad()
    percents = []
    try:
        with reprise.online(budget, most_recomputation=None) as mode:
            for _ in range(5):
                before = mode.summary
                step(model, forward)
                after = mode.summary
                percents.append(100 * (after.recompute_ns - before.recompute_ns) / (after.call_ns - before.call_ns))
    except reprise.BudgetExceeded:
        return {"followed_percent": None}
    return {"followed_percent": round(statistics.median(percents[2:]), 2), "followed_steps": after.followed_steps,
            "unplanned_evictions": after.unplanned_evictions, "followed_inside": after.peak_bytes <= budget}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "online-mode-cpu.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    _torch.install_meter()
    result = {"machine": platform.machine(), "torch": torch.__version__, "threads": 1, "samples": options.samples,
              "calls": call_rows(options.samples), "networks": [network_rows(name, options.samples) for name in NETWORKS]}
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
