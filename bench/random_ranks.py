"""Random runs of two processes that train together under plans: whatever happens on one of them, both train or both end.

    python bench/random_ranks.py [--runs 1000] [--seconds 60] [--seed 0] [-o FILE]

A run trains two steps of a small network in each process: with reprise.shard, with parallelize_module or in
DistributedDataParallel, with a budget between a little less than the least and a little more than is needed without
recomputation. One of the processes may hold memory beside the model, before the step or from the end of forward on; and on one of
them there may be an error: a graph break, a batch of another size, another budget, or an operator that throws at some call, in
forward or backward. Some runs compile the model anew.

Outcomes of a run, and nothing else is right:

- trained: the bits of plain PyTorch (FSDP2, eager tensor parallel, DDP) and measured peaks inside the budget in both processes;
- refused: the same error of Reprise in both, after which the same processes go on with the next run;
- ended: the operator threw in the middle of a step of one process, which ends as a script would; the other one does not wait for
  it for ever. Two new processes go on with the next run;
- hang: for --seconds the processes have neither ended a run nor computed; or a run has taken ten minutes. They are killed.

Other outcomes are `wrong`, and are written with their case. The command fails if a run hangs or is wrong. It goes on where it was
if FILE is there and was made with the same seed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import hashlib
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from processes import Process, parser_of, started
from torch import Tensor, library, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import reprise
from reprise import memory
from reprise.local_tensors import local

CPU = torch.device("cpu")
WIDTH, WORDS, LENGTH, BATCH, OTHER_BATCH, STEPS, BLOCKS = 64, 96, 32, 8, 6, 2, 2
SHARD, TENSOR, DDP = "reprise.shard", "parallelize_module", "DistributedDataParallel"
KINDS = (SHARD, TENSOR, DDP)
BREAK, SHAPE, BUDGET, OPERATOR = "graph break", "batch of another size", "another budget", "operator that throws"
MOST_SECONDS = 600  # of a run, or until new processes begin with one, however busy the machine is


@dataclass
class Case:
    """What both processes know of a run."""

    kind: str
    share: float  # of what lies between the least budget and the one without recomputation
    anew: bool  # compiles the model again
    ballast: float  # a share, too
    ballast_rank: int
    ballast_between: bool  # taken between forward and backward
    error: str | None
    error_rank: int
    other_share: float  # of another budget
    throws_at: int  # call of the operator


def case_of(seed: int, number: int) -> Case:
    draw = random.Random(f"{seed} {number}")
    error = draw.choices([None, BREAK, SHAPE, BUDGET, OPERATOR], [57, 12, 14, 14, 3])[0]
    share = draw.uniform(-0.1, 1.1)
    ballast = draw.choice([0.0, draw.uniform(0, 1.3) * max(share, 0.1)])  # most of these leave room enough
    return Case(draw.choice(KINDS), share, draw.random() < 0.1, ballast, draw.randrange(2), draw.random() < 0.25, error,
                draw.randrange(2), draw.uniform(-0.1, 1.1), draw.randrange(2 * STEPS * BLOCKS))


# -- The network, and an operator that can be made to throw.


class Thrown(Exception):
    pass


calls_left: list[int] = []  # until the operator throws; empty: it does not


def _count() -> None:
    if calls_left:
        calls_left[0] -= 1
        if calls_left[0] < 0:
            raise Thrown("the operator throws")


@library.custom_op("reprise_bench::fragile", mutates_args=())
def fragile(x: Tensor) -> Tensor:
    _count()
    return x * 2


@library.custom_op("reprise_bench::fragile_backward", mutates_args=())
def fragile_backward(x: Tensor) -> Tensor:
    _count()
    return x * 2


@fragile.register_fake
@fragile_backward.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


for operator in (fragile, fragile_backward):
    reprise.declare_repeatable(operator._opoverload)
fragile.register_autograd(lambda _, gradient: fragile_backward(gradient.contiguous()))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.dropout(nn.functional.gelu(fragile(self.up(self.norm(x)))), 0.1))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, WORDS)
        self.breaks = False

    def forward(self, words: Tensor) -> Tensor:
        x = self.blocks(self.words(words))
        if self.breaks and x.sum().item() > 1e9:
            x = x * 2
        return self.head(x)


def raw(tensor: Any) -> bytes:
    """In memory that no budget counts."""
    return local(tensor).detach().contiguous().numpy().tobytes()


class Trained:
    """A model that is trained in each run from the same beginning."""

    def __init__(self, kind: str, mesh: DeviceMesh, is_plain: bool) -> None:
        torch.manual_seed(0)
        self.net = Net()
        self.model: nn.Module = self.net
        if kind == DDP:
            self.model = DistributedDataParallel(self.net)
        elif kind == TENSOR:
            parallelize_module(self.net, mesh, {
                "words": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate()),
                **{f"blocks.{i}.{name}": style() for i in range(BLOCKS)
                   for name, style in (("up", ColwiseParallel), ("down", RowwiseParallel))}})
        elif is_plain:
            for block in self.net.blocks:
                fully_shard(block)
            fully_shard(self.net)
        else:
            reprise.shard(self.net, mesh)
        self.kind, self.tensors = kind, list(self.model.parameters())
        self.beginning = [raw(tensor) for tensor in self.tensors]
        self.optimizer = torch.optim.SGD(self.tensors, 0.1, momentum=0.9)
        if not is_plain:
            self.compile()

    def compile(self) -> None:
        reprise.compile(self.model, None, optimizer=self.optimizer, planning_seconds=0.1, capture="graph")

    def begin(self) -> None:
        for tensor, bits in zip(self.tensors, self.beginning, strict=True):
            there = local(tensor)
            there.detach().copy_(torch.frombuffer(bytearray(bits), dtype=there.dtype).view(there.shape))
        self.optimizer.state.clear()
        self.optimizer.zero_grad()

    def loss(self, step: int, batch: int) -> Tensor:
        # Tensor parallel has the same batch everywhere.
        torch.manual_seed(step + (0 if self.kind == TENSOR else 100 * dist.get_rank()))
        words = torch.randint(0, WORDS, (batch, LENGTH + 1))
        logits = self.model(words[:, :-1])
        logits = logits.full_tensor() if isinstance(logits, DTensor) else logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())

    def train(self, batch: int, ballast: int = 0, between: bool = False) -> tuple[str, int]:
        """A digest of everything that has to be the same, and the highest peak."""
        self.begin()
        left, peaks = hashlib.sha256(), [0]
        for step in range(STEPS):
            held = [torch.empty(0 if between else ballast, dtype=torch.uint8)]
            loss = self.loss(step, batch)
            held.append(torch.empty(ballast if between else 0, dtype=torch.uint8))
            loss.backward()
            left.update(raw(loss))
            if plan := getattr(self.model, "plan", None):
                peaks.append(plan.measured_peak_bytes)
            for tensor in self.tensors:
                left.update(raw(tensor.grad))
            self.optimizer.step()
            self.optimizer.zero_grad()
            del held, loss
        for tensor in self.tensors:
            left.update(raw(tensor))
        return left.hexdigest(), max(peaks)

    def budgets(self) -> tuple[int, int]:
        """The least, and the one without recomputation."""
        plan = self.model.plan
        self.begin()
        self.loss(0, BATCH).backward()
        self.optimizer.step()
        most = plan.peak_bytes
        self.begin()
        plan.set_budget(1)
        try:
            self.loss(0, BATCH)
        except reprise.InfeasibleBudget as error:
            return error.smallest_budget_bytes, most
        raise AssertionError("a budget of one byte was enough")


# -- One of the two processes.


class Runner:
    def __init__(self, process: Process, options: argparse.Namespace) -> None:
        self.rank, self.options = process.rank, options
        self.mesh = init_device_mesh("cpu", (options.ranks,))
        self.planned: dict[str, Trained] = {}
        self.file = Path(options.folder, f"known{process.rank}.json")
        # What earlier processes found: what plain PyTorch leaves, by kind and batch, and between what budgets are, by kind.
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.told = Path(options.folder, f"told{process.rank}.jsonl")

    def tell(self, **what: Any) -> None:
        with self.told.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def find(self, what: str, found: Callable[[], Any]) -> Any:
        if what not in self.known:
            self.known[what] = found()
            gc.collect()
            self.file.write_text(json.dumps(self.known))
        return self.known[what]

    def plain(self, kind: str, batches: tuple[int, ...]) -> str:
        return str(self.find(f"{kind} {batches}",
                             lambda: Trained(kind, self.mesh, is_plain=True).train(batches[self.rank])[0]))

    def run(self, number: int) -> bool:
        """Returns whether these processes can go on."""
        case = case_of(self.options.seed, number)
        mine = case.error_rank == self.rank
        batches = tuple(OTHER_BATCH if case.error == SHAPE and case.error_rank == rank else BATCH for rank in range(2))
        expected = self.plain(case.kind, batches) if case.error != SHAPE or case.kind == DDP else None
        if case.kind not in self.planned:
            self.planned[case.kind] = Trained(case.kind, self.mesh, is_plain=False)
        trained = self.planned[case.kind]
        least, most = self.find(case.kind, trained.budgets)
        room = most - least
        share = case.other_share if case.error == BUDGET and mine else case.share
        budget = least + int(share * room)
        self.tell(run=number)
        begin = time.monotonic()
        gc.collect()
        before = memory.allocated_bytes(CPU)
        if case.anew:
            trained.compile()
        trained.model.plan.set_budget(budget)
        trained.net.breaks = case.error == BREAK and mine
        calls_left[:] = [case.throws_at] if case.error == OPERATOR and mine else []
        said: dict[str, Any] = {}
        goes_on = True
        try:
            digest, peak = trained.train(batches[self.rank], int(case.ballast * room) if case.ballast_rank == self.rank else 0,
                                         case.ballast_between)
            said = {"outcome": "trained", "same": digest == expected, "inside": peak <= budget}
        except reprise.RankAbsent as error:
            said, goes_on = {"outcome": "lost", "error": f"{type(error).__name__}: {error}"[:300]}, False
        except reprise.RepriseError as error:
            said = {"outcome": "refused", "error": type(error).__name__, "says": str(error)}
        except Thrown:
            said, goes_on = {"outcome": "threw"}, False
        except Exception as error:
            said, goes_on = {"outcome": "lost", "error": f"{type(error).__name__}: {error}"[:300]}, False
        calls_left.clear()
        trained.net.breaks = False
        trained.begin()
        gc.collect()
        said["kept_bytes"] = memory.allocated_bytes(CPU) - before
        said["seconds"] = round(time.monotonic() - begin, 3)
        if goes_on:
            goes_on = self._others_go_on(said)
        self.tell(run=number, **said)
        return goes_on

    def _others_go_on(self, said: dict[str, Any]) -> bool:
        try:
            dist.barrier()
        except Exception as error:
            said |= {"outcome": "lost", "error": f"{type(error).__name__}: {error}"[:300]}
            return False
        return True


def run(process: Process, options: argparse.Namespace) -> None:
    runner = Runner(process, options)
    for number in range(options.first, options.runs):
        if not runner.run(number):
            break
    os._exit(0)  # as a script ends that had an error: nobody is told


# -- The process that watches.


def judged(case: Case, first: dict[str, Any], second: dict[str, Any]) -> str:
    said = [first, second]
    outcomes = [each["outcome"] for each in said]
    may_train = case.error not in (BREAK, SHAPE) or (case.error == SHAPE and case.kind == DDP)
    if outcomes == ["trained"] * 2 and may_train and all(each["same"] and each["inside"] for each in said):
        return "trained"
    if outcomes == ["refused"] * 2 and (first["error"], first["says"]) == (second["error"], second["says"]):
        return "refused"
    if case.error == OPERATOR and outcomes[case.error_rank] == "threw" and outcomes[1 - case.error_rank] == "lost":
        return "ended"
    return "wrong"


def lines_of(folder: str, rank: int) -> list[dict[str, Any]]:
    path = Path(folder, f"told{rank}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")] if path.exists() else []


@contextlib.contextmanager
def pair(options: argparse.Namespace) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as meeting:
        processes = started(run, options, meeting)
        try:
            yield processes
        finally:
            for process in processes.processes:
                process.kill()
                process.join()


def watch(options: argparse.Namespace) -> str | None:
    """Until the processes have ended; otherwise why they were killed."""
    with pair(options) as processes:
        seen, computed = -1, 0.0
        since = idle_since = time.monotonic()
        while not ended(processes):
            count = sum(line["run"] >= options.first for rank in range(2) for line in lines_of(options.folder, rank))
            now, cpu = time.monotonic(), sum(cpu_seconds(process.pid) for process in processes.processes)
            if abs(cpu - computed) > 0.1:  # A busy machine leaves more than that to who has something to do.
                computed, idle_since = cpu, now
            if count != seen:
                seen, since = count, now
            if now - since > MOST_SECONDS or min(now - since, now - idle_since) > options.seconds:
                return "hang"
    return None


def cpu_seconds(process: int) -> float:
    """That a process has computed."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # It has ended.
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(processes: Any) -> bool:
    try:
        return bool(processes.join(0.2))
    except Exception as error:
        print(error, flush=True)
        return True


@dataclass
class Tally:
    """What came of the runs."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    refusals: collections.Counter[str] = field(default_factory=collections.Counter)
    by_kind: collections.Counter[str] = field(default_factory=collections.Counter)
    by_error: collections.Counter[str] = field(default_factory=collections.Counter)
    bad: list[dict[str, Any]] = field(default_factory=list)
    kept: dict[str, int] = field(default_factory=dict)  # bytes that a run left behind, at most
    longest_s: float = 0.0

    def add(self, number: int, case: Case, said: list[dict[str, Any]], killed: str | None) -> None:
        what = judged(case, *said) if all(said) else killed or "wrong"
        self.counts[what] += 1
        self.by_kind[f"{case.kind}: {what}"] += 1
        self.by_error[f"{case.error or 'none'}: {what}"] += 1
        self.longest_s = max(self.longest_s, *(each.get("seconds", 0.0) for each in said))
        self.kept[what] = max(self.kept.get(what, 0), *(each.get("kept_bytes", 0) for each in said))
        if what == "refused":
            self.refusals[said[0]["error"]] += 1
        if what in ("wrong", "hang"):
            self.bad.append({"run": number, "what": what, "case": asdict(case), "said": said})
            print(json.dumps(self.bad[-1]), flush=True)

    @staticmethod
    def of(told: dict[str, Any]) -> Tally:
        counted = [collections.Counter(told[name]) for name in ("counts", "refused_with", "by_kind", "by_error")]
        return Tally(*counted, told["bad"], told["most_kept_bytes"], told["longest_run_s"])

    def told(self) -> dict[str, Any]:
        return {"counts": {what: self.counts[what] for what in ("trained", "refused", "ended", "wrong", "hang")},
                "refused_with": dict(sorted(self.refusals.items())), "by_error": dict(sorted(self.by_error.items())),
                "by_kind": dict(sorted(self.by_kind.items())), "most_kept_bytes": self.kept, "longest_run_s": self.longest_s,
                "bad": self.bad}


def main() -> int:
    parser = parser_of(__doc__, "random-ranks-cpu")
    parser.set_defaults(ranks=2)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tally, pairs, options.first, minutes = Tally(), 0, 0, 0.0
    if options.output.exists() and (before := json.loads(options.output.read_text()))["seed"] == options.seed:
        tally, pairs, options.first = Tally.of(before), before["pairs_of_processes"], before["runs"]
        minutes = before["minutes"]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as options.folder:
        os.environ["REPRISE_CACHE_DIR"] = f"{options.folder}/cache"
        while options.first < options.runs:
            pairs += 1
            killed = watch(options)
            told = [lines_of(options.folder, rank) for rank in range(2)]
            last = max((line["run"] for lines in told for line in lines), default=options.first)
            for number in range(options.first, max(last, options.first) + 1):
                said = [next((line for line in lines if line["run"] == number and "outcome" in line), {}) for lines in told]
                tally.add(number, case_of(options.seed, number), said, killed)
            options.first = max(last, options.first) + 1
            print(options.first, dict(tally.counts), f"{pairs} pairs of processes", flush=True)
            result = {"command": " ".join(["python", *sys.argv]), "machine": platform.machine(), "torch": torch.__version__,
                      "backend": "gloo", "seed": options.seed, "runs": options.first,
                      "pairs_of_processes": pairs, "minutes": round(minutes + (time.monotonic() - begin) / 60, 1), **tally.told()}
            options.output.write_text(json.dumps(result, indent=1) + "\n")  # also if it is interrupted later
    print(json.dumps(tally.told()["counts"]))
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())
