"""Compares steps that copy values to the host's memory and back with eager PyTorch, on every network of the exactness matrix.

    python scripts/host_matrix.py [--cases resnet50,unet] [--jobs 8] [--limit 150] [--again] [-o FILE]

Each network runs eager steps, and is captured. At two budgets a plan is made for a link that takes no time, so that it copies as
much as it can, and runs from the same state: as it is, and with a delay before each copy, so that whoever does not wait for a
copy reads wrong numbers. A row says whether the loss, the gradients, the buffers and the generators have the bits of eager (as in
matrix.py, some networks cannot), how many copies the plan has, whether the peak is the predicted one to the byte, and whether it
is inside the budget. What is in the file is not run again; when the limit in seconds is over, the networks that are left wait for
the next call. The exit status is 1 if a row is not as promised, a plan copies nothing, or a network is left. On the CPU, which
has no link, plans copy nothing: this is for trying the command.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from matrix import NOT_EAGERS, ROOT, Bench, set_up
from models.zoo import CASES

from reprise import _core, planning
from reprise.native import _torch

HOST_BYTES = 64 << 30
DELAY_CYCLES = 1_000_000  # about 0.6 ms, more than a copy takes here
SHARES = {"two thirds": 2 / 3, "a third": 1 / 3}  # of the way from the smallest budget without copies to the plain peak
COPYING = (_core.ActionKind.STORE, _core.ActionKind.FETCH)


@dataclass
class Row:
    case: str
    budget: str
    delayed: bool
    copies: int
    host_bytes: int
    budget_bytes: int
    predicted_bytes: int
    measured_bytes: int
    judged: dict[str, bool | None] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        good = self.judged.get("close") if not self.judged.get("repeats", True) else (
            self.judged["as_none"] and self.judged["as_eager"] is not False)
        return bool(good) and self.predicted_bytes == self.measured_bytes <= self.budget_bytes


def copying_plan(graph: _core.Graph, costs: _core.Costs, room: int, seconds: float, can_copy: bool) -> Any:
    link = _core.Link(10**15, 10**15, latency_ns=1)
    free = _core.Costs(costs.time_ns, costs.workspace_bytes, costs.value_bytes, link if can_copy else None)
    limit = time.monotonic() + seconds
    return _core.solve(graph, free, budget_bytes=room, host_budget_bytes=HOST_BYTES if can_copy else 0,
                       should_stop=lambda: time.monotonic() > limit)


def rows_of(name: str, options: argparse.Namespace) -> list[Row]:
    set_up(options.device)
    bench = Bench(name, options.batch, options.device)
    plan = bench.model.plan
    can_copy = options.device.type == "cuda"
    if can_copy:
        plan.set_host_budget(HOST_BYTES)
    outside, plain = plan.outside_bytes, plan.peak_bytes - plan.outside_bytes
    graph, costs = bench.captured
    smallest = planning.smallest_budget_bytes(graph, costs, planning.AUTO, options.seconds)
    rows = []
    for words, share in SHARES.items():
        room = smallest + int(share * (plain - smallest))
        found = copying_plan(graph, costs, room, options.seconds, can_copy)
        copies = sum(kind in COPYING for kind, _ in found.plan.actions)
        for delayed in (False, True):
            if delayed and can_copy:
                _torch.delay_copies(functools.partial(torch.cuda._sleep, DELAY_CYCLES))
            row = bench.row("auto", words, found.plan, room + outside)
            _torch.delay_copies(lambda: None)
            judged = {key: getattr(row, key) for key in ("as_none", "as_eager", "repeats", "close")}
            rows.append(Row(name, words, delayed, copies, plan.host_peak_bytes, room + outside, row.predicted_bytes,
                            row.measured_bytes, judged))
    return rows


def in_a_process(name: str, options: argparse.Namespace, end: float) -> list[Row] | None:
    """The rows of a network, or None if the limit is over."""
    left = end - time.monotonic()
    if left <= 0:
        return None
    command = [sys.executable, __file__, "--one", name, "--device", str(options.device), "--batch", str(options.batch),
               "--seconds", str(options.seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def facts(options: argparse.Namespace) -> dict[str, Any]:
    on_gpu = options.device.type == "cuda"
    return {"command": "python scripts/host_matrix.py", "torch": torch.__version__, "batch": options.batch,
            "seconds_per_plan": options.seconds, "exceptions": NOT_EAGERS,
            **({"gpu": torch.cuda.get_device_name(options.device), "cuda": torch.version.cuda} if on_gpu else {})}


def known_rows(options: argparse.Namespace) -> list[Row]:
    if options.again or not options.output.exists():
        return []
    return [Row(**row) for row in json.loads(options.output.read_text())["rows"]]


def run(options: argparse.Namespace) -> int:
    names = options.cases.split(",")
    rows = known_rows(options)
    begin = time.monotonic()
    wanted = [name for name in names if name not in {row.case for row in rows}]
    left = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(in_a_process, name, options, begin + options.limit): name for name in wanted}
        for done in concurrent.futures.as_completed(running):
            mine = done.result()
            if mine is None:
                left.append(running[done])
                continue
            rows += mine
            print(f"{running[done]:<22}{sum(row.kept for row in mine)} of {len(mine)} rows as promised, "
                  f"{[row.copies for row in mine]} copies, {time.monotonic() - begin:.0f} s", flush=True)
            options.output.write_text(json.dumps(facts(options) | {"rows": [asdict(row) for row in rows]}, indent=0) + "\n")
    wrong = [row for row in rows if not row.kept or (row.copies == 0 and options.device.type == "cuda")]
    for row in wrong:
        print("   ", row)
    print(f"{len(rows) - len(wrong)} passed, {len(wrong)} failed, {len(left)} networks left: {','.join(left)}")
    return 1 if wrong or left or not rows else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda", 0))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0, help="the time limit for planning one budget")
    parser.add_argument("--jobs", type=int, default=8, help="how many networks run at a time, each in a process of its own")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for everything")
    parser.add_argument("--again", action="store_true", help="also run what is in the file already")
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "host-matrix-cuda.json")
    options = parser.parse_args()
    if options.one is None:
        return run(options)
    print(json.dumps([asdict(row) for row in rows_of(options.one, options)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
