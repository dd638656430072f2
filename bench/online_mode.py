"""What the online mode costs: a call, a step without pressure, and recomputation at budgets beside planner `auto`.

    scripts/python.sh bench/online_mode.py [--device cuda] [--samples 15] [-o FILE]

Calls and steps with and without the mode are interleaved in one process with one thread, and medians are compared: on the CPU of
the processor's time, which other processes disturb less than the clock, on CUDA by the clock until the device is done. Shares are
of the memory that the step takes above what is there before it. Recomputation of the online mode is the time that repeated calls
took when they were first made, by the time of all first calls: by rule (`online_percent`), and in steps that follow a plan
(`followed_percent`, the median of three after two that learn), with the time of such a step in multiples of a plain one
(`followed_ratio`). That of `auto` is what its plan predicts for the captured step (`auto_percent`), and what it would be if
backward had to run in the order in which the program runs it, as it does online (`auto_in_order_percent`; needs the command
`reprise`).
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
from reprise import _core, memory  # noqa: E402

SHARES = (80, 60, 50)
CALLS = 10_000
COMMAND = ROOT / "build" / "release" / "tools" / "reprise"


def seconds(run: Callable[[], Any], device: torch.device, times: int = 1) -> float:
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    wait(device)
    begin = clock()
    for _ in range(times):
        run()
    wait(device)
    return (clock() - begin) / times


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleaved(run: Callable[[], Any], device: torch.device, samples: int, times: int = 1) -> tuple[float, float]:
    """The medians without and with the mode."""
    plain, within = [], []
    for _ in range(samples):
        plain.append(seconds(run, device, times))
        with reprise.online("64GiB", device=device):
            run()
            within.append(seconds(run, device, times))
    return statistics.median(plain), statistics.median(within)


def call_rows(device: torch.device, samples: int) -> list[dict]:
    small, large = torch.randn(4, 4, device=device), torch.randn(128, 64, device=device)
    kinds = {"16 elements": lambda: small.add(1.0), "32 KiB": lambda: large.add(1.0),
             "32 KiB in place": lambda: large.add_(1.0), "a view": lambda: large.view(-1)}
    rows = []
    for name, run in kinds.items():
        plain, within = interleaved(run, device, samples, CALLS)
        rows.append({"call": name, "plain_us": round(1e6 * plain, 3), "online_us": round(1e6 * within, 3),
                     "overhead_us": round(1e6 * (within - plain), 3)})
        print(rows[-1], flush=True)
    return rows


def gpt2(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    torch.manual_seed(0)
    layers, width, words, length, rows = (6, 384, 5000, 256, 4) if device.type == "cpu" else (24, 1024, 50257, 1024, 8)
    tokens = torch.randint(words, (rows, length), device=device)
    return hf.gpt2(layers, width, words, length).train().to(device), lambda model: model(tokens).logits


def resnet50(device: torch.device) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    torch.manual_seed(0)
    images = torch.randn(*((16, 3, 96, 96) if device.type == "cpu" else (96, 3, 224, 224)), device=device)
    return ResNet(50).train().to(device), lambda model: model(images)


NETWORKS = {"gpt2": gpt2, "resnet50": resnet50}


def step(model: nn.Module, forward: Callable[[nn.Module], Any]) -> None:
    model.zero_grad()
    logits = forward(model)
    logits = logits.flatten(0, -2)
    nn.functional.cross_entropy(logits, torch.arange(logits.shape[0], device=logits.device) % logits.shape[1]).backward()


def network_rows(name: str, device: torch.device, samples: int) -> dict:
    model, forward = NETWORKS[name](device)
    step(model, forward)
    plain, within = interleaved(lambda: step(model, forward), device, samples)
    row: dict[str, Any] = {"network": name, "plain_ms": round(1e3 * plain, 2), "online_ms": round(1e3 * within, 2),
                           "ratio": round(within / plain, 4), "shares": []}
    print({key: value for key, value in row.items() if key != "shares"}, flush=True)
    model.zero_grad()
    before = memory.allocated_bytes(device)
    memory.reset_peak(device)
    step(model, forward)
    above = memory.peak_bytes(device) - before
    for share in SHARES:
        row["shares"].append(share_row(model, forward, share, above, plain))
        print(name, row["shares"][-1], flush=True)
    return row


def share_row(model: nn.Module, forward: Callable[[nn.Module], Any], share: int, above: int, plain: float) -> dict:
    model.zero_grad()
    device = next(model.parameters()).device
    budget = memory.allocated_bytes(device) + above * share // 100
    made: dict[str, Any] = {"share": share}
    try:
        with reprise.online(budget, model, most_recomputation=None, planning_seconds=0) as mode:
            step(model, forward)
            summary = mode.summary
        made |= {"online_percent": round(100 * summary.recompute_ns / summary.call_ns, 2),
                 "evictions": summary.evictions, "repeated_calls": summary.repeated_calls,
                 "inside": summary.peak_bytes <= budget}
    except reprise.BudgetExceeded:
        made["online_percent"] = None
    made |= followed(model, forward, budget, plain)
    model.zero_grad()
    # On the CPU, a plan's budget counts what belongs to the model, and not what else the process has.
    own = (memory.storage_bytes([*model.parameters(), *model.buffers()], device) if device.type == "cpu"
           else memory.allocated_bytes(device))
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
        made = _core.simulate(plan.graph, plan.costs, _core.PlanFile.parse(found.read_text(), str(found)).plan)
    return round(100 * made.recompute_ns / (made.time_ns - made.recompute_ns), 2)


def followed(model: nn.Module, forward: Callable[[nn.Module], Any], budget: int, plain: float) -> dict:
    """What steps recompute that follow the plan of an earlier one, and the time they take."""
    model.zero_grad()
    device = next(model.parameters()).device
    percents, took = [], []
    try:
        with reprise.online(budget, model, most_recomputation=None) as mode:
            for _ in range(5):
                before = mode.summary
                took.append(seconds(lambda: step(model, forward), device))
                after = mode.summary
                percents.append(100 * (after.recompute_ns - before.recompute_ns) / (after.call_ns - before.call_ns))
    except reprise.BudgetExceeded:
        return {"followed_percent": None}
    return {"followed_percent": round(statistics.median(percents[2:]), 2), "followed_steps": after.followed_steps,
            "followed_ratio": round(statistics.median(took[2:]) / plain, 3),
            "unplanned_evictions": after.unplanned_evictions, "followed_inside": after.peak_bytes <= budget}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("-o", "--output", type=Path, help="default: online-mode-DEVICE.json among the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    memory.install_meter()
    device = options.device
    machine = platform.machine() if device.type == "cpu" else torch.cuda.get_device_name(device)
    result = {"machine": machine, "torch": torch.__version__, "threads": 1, "samples": options.samples,
              "calls": call_rows(device, options.samples),
              "networks": [network_rows(name, device, options.samples) for name in NETWORKS]}
    output = options.output or ROOT / "bench" / "results" / f"online-mode-{device.type}.json"
    output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
