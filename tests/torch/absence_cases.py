"""What two processes do for test_absence.py: one of them does not come, and at last ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from several_processes import RANKS, SECONDS, leave_results
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

import reprise
from reprise.api import ranks

ranks.PATIENCE = 1.0


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))


def in_ddp(group: dist.ProcessGroup) -> nn.Module:
    return DDP(net(), process_group=group)


def in_units(group: dist.ProcessGroup) -> nn.Module:
    return fully_shard(net(), mesh=DeviceMesh.from_group(group, "cpu"))


def sharded(group: dist.ProcessGroup) -> nn.Module:
    return reprise.shard(net(), DeviceMesh.from_group(group, "cpu"))


def divided(group: dist.ProcessGroup) -> nn.Module:
    return parallelize_module(net(), DeviceMesh.from_group(group, "cpu"), {"0": ColwiseParallel(), "2": RowwiseParallel()})


KINDS: dict[str, Callable[[dist.ProcessGroup], nn.Module]] = {
    "ddp": in_ddp, "units": in_units, "shard": sharded, "tensor": divided}


def told(run: Callable[[], Any]) -> tuple[str, str]:
    try:
        run()
    except reprise.RepriseError as error:
        return type(error).__name__, str(error)
    raise AssertionError("nobody was missed")


class Trained:
    """A model that has trained. The second process is missed in all that comes."""

    def __init__(self, kind: str) -> None:
        self.group = dist.new_group(timeout=timedelta(seconds=SECONDS))
        self.model = reprise.compile(KINDS[kind](self.group), "1GiB", planning_seconds=1)
        for _ in range(2):  # DDP divides its buckets anew after the first step.
            self.loss().backward()
            self.model.zero_grad()

    def loss(self) -> Tensor:
        return self.model(torch.ones(2, 4)).sum()

    def missed(self, run: Callable[[], Any], turns: dist.Store, name: str) -> tuple[str, str] | None:
        """The second process waits somewhere else until the first one has given up."""
        if dist.get_rank() != 0:
            turns.wait([name], timedelta(seconds=300))
            return None
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1), self.group)
        said = told(run)
        turns.set(name, "")
        return said


def run(rank: int, folder: str) -> None:
    """The second process does not come to a call, and then not to a backward."""
    def results() -> dict[str, Any]:
        turns = dist.FileStore(f"{folder}/turns", RANKS)
        trained = Trained("ddp")
        found: dict[str, Any] = {"call": trained.missed(trained.loss, turns, "call")}
        trained = Trained("tensor")
        loss = trained.loss()
        return found | {"backward": trained.missed(loss.backward, turns, "backward"),
                        "again": trained.missed(trained.loss, turns, "again"),
                        "gradients": sum(p.grad is not None for p in trained.model.parameters())}

    leave_results(rank, folder, results)


def run_and_end(rank: int, folder: str) -> None:
    """The second process ends before the step."""
    def results() -> dict[str, Any]:
        models = {kind: Trained(kind) for kind in KINDS}
        if rank == 1:
            torch.save({}, Path(folder) / "results1.pt")
            os._exit(0)
        return {kind: told(trained.loss) for kind, trained in models.items()}

    leave_results(rank, folder, results)
