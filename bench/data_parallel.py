"""DistributedDataParallel with and without a budget: bits, peak, and the time of a step.

    python bench/data_parallel.py [--device cuda] [--ranks 1] [--samples 15] [--shares 100,60] [-o FILE]

Each process trains three copies of a network: in DDP, in DDP under a plan, and under the same plan without DDP. Steps of the
three come in turns, and medians are compared. A share is that of what a step in DDP takes beyond parameters, gradients and
buckets; 100 means without a budget. Bits are those of losses, gradients and parameters after three steps, beside plain DDP's
and those of plain DDP trained again. One process per GPU talks through NCCL, two on one GPU or on the CPU through gloo.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from processes import Process, in_processes, parser_of, seconds_of
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from models import huggingface as hf  # noqa: E402
from models.resnet import ResNet  # noqa: E402

import reprise  # noqa: E402
from reprise import memory, planning  # noqa: E402

os.environ.setdefault("REPRISE_WAITING_SECONDS", "1e9")  # Every step waits for the plan that the whole search finds.
Batch = tuple[Tensor, Tensor]


class Language(nn.Module):
    """The loss is inside."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        return self.model(tokens, labels=labels).loss


class Images(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(images), labels)


def resnet50(device: torch.device) -> tuple[nn.Module, Batch]:
    batch, size = (64, 224) if device.type == "cuda" else (8, 64)
    return Images(ResNet(50)), (torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,)))


def gpt2(device: torch.device) -> tuple[nn.Module, Batch]:
    layers, width, words, shape = (12, 768, 50257, (8, 1024)) if device.type == "cuda" else (4, 256, 2000, (2, 128))
    tokens = torch.randint(0, words, shape)
    return Language(hf.gpt2(layers, width, words, shape[1], dropout=0.0)), (tokens, tokens)


NETWORKS: dict[str, Callable[[torch.device], tuple[nn.Module, Batch]]] = {"resnet50": resnet50, "gpt2": gpt2}


class Trainee:
    def __init__(self, model: nn.Module, batch: Batch, device: torch.device, budget: int | None = None, *, ddp: bool = True,
                 planned: bool = True) -> None:
        self.device, self.batch = device, batch
        self.module = copy.deepcopy(model)
        devices = [device] if device.type == "cuda" else None
        self.model = DDP(self.module, device_ids=devices, gradient_as_bucket_view=False) if ddp else self.module
        self.optimizer = torch.optim.SGD(self.module.parameters(), 0.01, momentum=0.9)
        if planned:
            reprise.compile(self.model, budget, optimizer=self.optimizer, cuda_graphs=False)

    def step(self) -> Tensor:
        loss = self.model(*self.batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def bits(self) -> list[bytes]:
        losses = [self.step() for _ in range(3)]
        self.model(*self.batch).backward()
        tensors = [*losses, *(p.grad for p in self.module.parameters()), *self.module.parameters()]
        self.optimizer.zero_grad()
        return [t.detach().cpu().contiguous().numpy().tobytes() for t in tensors if t is not None]

    def seconds(self) -> float:
        return seconds_of(self.step, self.device)

    def peak_bytes(self) -> int:
        """The peak of a step, above what is there before it."""
        memory.reset_peak(self.device)
        before = memory.allocated_bytes(self.device)
        self.step()
        return memory.peak_bytes(self.device) - before


def measure(name: str, share: int, device: torch.device, samples: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model, batch = NETWORKS[name](device)
    model, batch = model.to(device).train(), tuple(t.to(device) for t in batch)
    memory.install_meter()
    plain, again = (Trainee(model, batch, device, planned=False) for _ in range(2))
    expected, repeated = plain.bits(), again.bits()
    del again
    own = 4 * memory.storage_bytes(list(model.parameters()), device)  # parameters, gradients, buckets, momentum
    above = plain.peak_bytes() - memory.storage_bytes(list(model.parameters()), device)
    others = memory.allocated_bytes(device) if device.type == "cuda" else 0  # of the copies beside it
    budget = None if share == 100 else others + own + above * share // 100
    within = Trainee(model, batch, device, budget)
    found = within.bits()
    plan = within.model.plan
    row: dict[str, Any] = {
        "network": name, "share": share, "tensors": len(expected),
        "same": sum(a == b for a, b in zip(expected, found, strict=True)),
        "ddp_repeats": sum(a == b for a, b in zip(expected, repeated, strict=True)),
        "predicted_bytes": plan.peak_bytes, "measured_bytes": plan.measured_peak_bytes, "budget_bytes": budget,
        "recomputation_percent": round(planning.recomputation_percent(plan.recompute_ns, plan.time_ns), 2)}
    ways = {"ddp": plain, "ddp_planned": within}
    if share == 100:
        ways["planned_alone"] = Trainee(model, batch, device, ddp=False)
        ways["planned_alone"].bits()
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(samples):
        for way, trainee in ways.items():
            taken[way].append(trainee.seconds())
    row |= {f"{way}_ms": round(1e3 * statistics.median(times), 2) for way, times in taken.items()}
    row["ratio_to_ddp"] = round(row["ddp_planned_ms"] / row["ddp_ms"], 4)
    return row


def run(process: Process, options: argparse.Namespace) -> None:
    torch.use_deterministic_algorithms(options.device == "cuda", warn_only=True)
    torch.backends.cudnn.benchmark = False
    rows = []
    for name in options.networks.split(","):
        for share in map(int, options.shares.split(",")):
            rows.append(measure(name, share, process.device, options.samples))
            if process.rank == 0:
                print(rows[-1], flush=True)
                options.output.write_text(json.dumps({**process.known, "results": rows}, indent=1) + "\n")


def main() -> int:
    parser = parser_of(__doc__, "data-parallel")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--shares", default="100,60")
    in_processes(run, parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
