"""Every way to train in several processes beside the same network in one: bits, budgets, and the time of a step.

    python bench/modes.py [--device cuda] [--samples 15] [--parts ddp:1,units:1,...] [--seconds 30] [-o FILE]

A part is a way and a number of processes, `ddp:1`: DistributedDataParallel (ddp), units of fully_shard (units),
reprise.shard (shard), parallelize_module (tensor), and a stage of a pipeline with four micro-batches (stage, in one process
alone). In each process three copies of a small GPT are trained: in that way without a plan, in that way under a plan, and
under a plan as one process alone would ("alone"). Rows are without a budget, and with a quarter of the step's own peak
taken away from both plans.

Plans are compared with their like: alone, what the way plans in regions is planned in the same regions, and what it plans
as one graph without collectives runs the very same plan (`same_plan`). The graphs of shard and tensor have collectives, and
their plans without a budget keep everything, as alone; with less, `recomputation_percent` and `recomputation_alone_percent`
say how alike they are. `same` compares losses, momentum and parameters of three steps with those of the way without a plan
(for reprise.shard: of fully_shard); `ratio_to_alone` compares medians of steps that come in turns. `vote_us` is the time in
which the processes agree on a step, once. Two processes share one GPU through gloo, which has not all that NCCL has; a part
that it refuses says so. Each part has processes of its own, which are killed after --seconds. What is known is written
after every part; rows that FILE has for other parts or other machines stay. All that one GPU can say under NCCL:

    python bench/modes.py --device cuda --parts ddp:1,units:1,shard:1,tensor:1,stage:1 --seconds 120
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from processes import Process, in_processes, parser_of, seconds_of
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import reprise
from reprise import memory, planning
from reprise.api.ranks import Ranks
from reprise.local_tensors import local_tensors

os.environ.setdefault("REPRISE_WAITING_SECONDS", "1e9")  # Every step waits for the plan that the whole search finds.
DDP, UNITS, SHARD, TENSOR, STAGE = "ddp", "units", "shard", "tensor", "stage"
PARTS = ",".join([*(f"{way}:1" for way in (DDP, UNITS, SHARD, TENSOR, STAGE)), *(f"{way}:2" for way in (DDP, SHARD, TENSOR))])
MICRO_BATCHES = 4
HEAD = 64  # numbers in a head of attention
VOTES = 200
KEY = ("way", "ranks", "budget", "machine", "gpu", "torch")  # of a row: a later run of the same replaces it


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        there = self.before(x)
        heads = [part(there).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        seen = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(-2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class Net(nn.Module):
    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.head = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(words)))


def loss_of(logits: Tensor, words: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), words.flatten())


class Trainee:
    """A copy of the network, trained in one way."""

    def __init__(self, process: Process, part: str, way: str | None, *, plans: bool) -> None:
        """way: None for one process alone, beside those that train as the part says."""
        self.device, self.way = process.device, way
        on_gpu = self.device.type == "cuda"
        words, width, layers, batch, length = (8192, 1024, 6, 32, 1024) if on_gpu else (256, 128, 2, 8, 64)
        torch.manual_seed(0)
        self.net = Net(words, width, layers).to(self.device, torch.bfloat16 if on_gpu else torch.float32)
        self.model: nn.Module = self.net
        self.schedule: Any = None
        self.micro = MICRO_BATCHES if part == STAGE else 1
        self._divide(process.known["ranks"], plans)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.01, momentum=0.9)
        if plans:
            regions = {UNITS: list(self.net.blocks), STAGE: [self.net]}.get(part) if way is None else None
            reprise.compile(self.schedule or self.model, None, optimizer=self.optimizer, regions=regions)
        torch.manual_seed(1 if part == TENSOR else 1 + process.rank)
        self.words = torch.randint(0, words, (batch, length + 1), device=self.device)

    def _divide(self, ranks: int, plans: bool) -> None:
        mesh = init_device_mesh(self.device.type, (ranks,))
        if self.way == DDP:
            devices = [self.device] if self.device.type == "cuda" else None
            self.model = DistributedDataParallel(self.net, device_ids=devices, gradient_as_bucket_view=True)
        elif self.way == SHARD and plans:
            reprise.shard(self.net, mesh)
        elif self.way in (UNITS, SHARD):
            for block in self.net.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(self.net, mesh=mesh)
        elif self.way == TENSOR:
            columns = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
            rows = {name: RowwiseParallel() for name in ("out", "down")}
            for block in self.net.blocks:
                parallelize_module(block, mesh, {**columns, **rows})
        elif self.way == STAGE:
            self.schedule = Schedule1F1B(PipelineStage(self.net, 0, 1, self.device), MICRO_BATCHES, loss_fn=loss_of)

    @property
    def plan(self) -> Any:
        return (self.schedule or self.model).plan

    def step(self) -> list[Tensor]:
        losses: list[Tensor] = []
        if self.schedule is not None:
            self.schedule.step(self.words[:, :-1], target=self.words[:, 1:], losses=losses)
        else:
            for words in self.words.chunk(self.micro):
                losses.append(loss_of(self.model(words[:, :-1]), words[:, 1:]) / self.micro)
                losses[-1].backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return [loss.detach() for loss in losses]

    def bits(self) -> list[bytes]:
        """What three steps from where it is give."""
        tensors = [loss for _ in range(3) for loss in self.step()]
        tensors += local_tensors(self.net.parameters())
        tensors += local_tensors(self.optimizer.state[p]["momentum_buffer"] for p in self.net.parameters())
        return [tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]

    def seconds(self) -> float:
        return seconds_of(self.step, self.device)


def vote_us() -> float:
    """The time of one vote, in the median."""
    ranks = Ranks(dist.group.WORLD)
    times = []
    for _ in range(VOTES):
        begin = time.perf_counter()
        ranks.agree(None, list(range(8)))
        times.append(time.perf_counter() - begin)
    return round(1e6 * statistics.median(times), 1)


def percent_again(trainee: Trainee) -> float:
    return round(planning.recomputation_percent(trainee.plan.recompute_ns, trainee.plan.time_ns), 2)


def rows_of(process: Process, part: str, samples: int) -> list[dict[str, Any]]:
    memory.install_meter()
    # All copies are there before the first one is compiled, because budgets count what is allocated from then on.
    plain, planned = (Trainee(process, part, part, plans=plans) for plans in (False, True))
    alone = Trainee(process, part, None, plans=True)
    known = {key: value for key, value in process.known.items() if key != "command"}
    rows = []
    taken = 0
    parts = 2 if part == STAGE else 4  # Most of what a micro-batch adds are gradients, which plans cannot take away.
    for name in ("none", f"1/{parts} less"):
        if taken:
            for trainee in (planned, alone):
                trainee.plan.set_budget(trainee.plan.peak_bytes - taken)
        expected, found = plain.bits(), planned.bits()
        alone.bits()
        if part == DDP and taken:
            alone.plan.use(planned.plan.actions, "the plan inside DistributedDataParallel")
        times: dict[str, list[float]] = {"way": [], "planned": [], "alone": []}
        for _ in range(samples):
            for key, trainee in zip(times, (plain, planned, alone), strict=True):
                times[key].append(trainee.seconds())
        medians = {key: statistics.median(values) for key, values in times.items()}
        plan = planned.plan
        rows.append({
            "way": part, "budget": name, **known, "samples": samples, "same": expected == found,
            "predicted_bytes": plan.peak_bytes, "measured_bytes": plan.measured_peak_bytes, "budget_bytes": plan.budget_bytes,
            "inside": plan.budget_bytes is None or plan.measured_peak_bytes <= plan.budget_bytes,
            "same_plan": part == DDP and plan.actions.actions == alone.plan.actions.actions,
            "recomputation_percent": percent_again(planned), "recomputation_alone_percent": percent_again(alone),
            **{f"{key}_ms": round(1e3 * value, 2) for key, value in medians.items()}, "vote_us": vote_us(),
            "ratio_to_alone": round(medians["planned"] / medians["alone"], 4),
            "ratio_to_way": round(medians["planned"] / medians["way"], 4)})
        taken = (alone.plan.measured_peak_bytes - memory.allocated_bytes(process.device)) // parts
    return rows


def run(process: Process, options: argparse.Namespace) -> None:
    torch.use_deterministic_algorithms(options.device == "cuda", warn_only=True)
    rows = rows_of(process, options.part, options.samples)
    if process.rank == 0:
        options.output.write_text(json.dumps(rows))


def end_group(process: subprocess.Popen[str]) -> None:
    """The process, and those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def found_by(options: argparse.Namespace, name: str) -> list[dict[str, Any]]:
    """What the processes of one part have found, or how they ended."""
    way, ranks = name.split(":")
    failed = {"way": way, "ranks": int(ranks), "machine": platform.machine(), "torch": torch.__version__,
              "gpu": torch.cuda.get_device_name() if options.device == "cuda" else None}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "part.json")
        command = [sys.executable, __file__, "--part", way, "--ranks", ranks, "--device", options.device,
                   "--samples", str(options.samples), "-o", str(output)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            said = process.communicate(timeout=options.seconds)[1]
        except subprocess.TimeoutExpired:
            return [{**failed, "error": f"not done in {options.seconds:g} s"}]
        finally:
            end_group(process)
        if output.exists():
            return list(json.loads(output.read_text()))
        lines = [line for line in said.splitlines() if line.strip()]
        return [{**failed, "error": " | ".join(lines[-2:])[-600:]}]


def joined(before: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The new rows, and those from before that no new one replaces. What worked replaces what did not."""
    def keys(row: dict[str, Any]) -> set[tuple[Any, ...]]:
        return {tuple({**row, "budget": budget}.get(name) for name in KEY) for budget in (row.get("budget"), None)}

    replaced = {key for row in rows for key in keys(row)}
    return [row for row in before if tuple(row.get(name) for name in KEY) not in replaced] + rows


def main() -> int:
    parser = parser_of(__doc__, "modes")
    parser.add_argument("--parts", default=PARTS)
    parser.add_argument("--part", help="runs this way in processes of this command, for the command itself")
    parser.add_argument("--seconds", type=float, default=30, help="for which the processes of a part may run")
    options = parser.parse_args()
    if options.part:
        in_processes(run, options)
        return 0
    before = json.loads(options.output.read_text())["results"] if options.output.exists() else []
    rows: list[dict[str, Any]] = []
    for name in options.parts.split(","):
        rows += (found := found_by(options, name))
        for row in found:
            print(row, flush=True)
        told = {"command": " ".join(["python", *sys.argv]), "results": joined(before, rows)}
        options.output.write_text(json.dumps(told, indent=1) + "\n")
    return 1 if any(row.get("same") is False or row.get("inside") is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
