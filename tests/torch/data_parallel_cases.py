"""What two processes do for test_data_parallel.py. Each case returns something that can be compared outside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from several_processes import RANKS, leave_results
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel as DDP

import reprise
from reprise.api.data_parallel import DataParallel


class Net(nn.Module):
    def __init__(self, unused: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(layer for width in (3, 16, 16) for layer in (nn.Conv2d(width, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())),
            nn.Dropout(0.2), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.head = nn.Linear(256, 10)
        if unused:
            self.never = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 13:
            raise ValueError("thirteen images")
        return self.head(self.body(x))


Prepare = Callable[[DDP], None]


def train(budget: int | None, *, micro: int = 1, unused: bool = False, sizes: tuple[int, ...] = (8, 8, 8),
          prepare: Prepare = lambda ddp: None, compiled_first: bool = False, **options: Any) -> tuple[list[bytes], DDP]:
    """Trains steps, and returns everything that has to be the same, and the model. None: without a plan."""
    torch.manual_seed(0)
    model = Net(unused)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    if compiled_first:
        reprise.compile(model, budget, optimizer=optimizer, planning_seconds=1)
    ddp = DDP(model, **options)
    prepare(ddp)
    if budget is not None and not compiled_first:
        reprise.compile(ddp, budget, optimizer=optimizer, planning_seconds=1)
    left = []
    for step, size in enumerate(sizes):
        for part in range(micro):
            torch.manual_seed(100 * dist.get_rank() + 10 * step + part)
            with ddp.no_sync() if part < micro - 1 else contextlib.nullcontext():
                loss = loss_of(ddp, size)
                loss.backward()
            left.append(bits_of(loss))
        left += [bits_of(p.grad) for p in model.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
    return left + [bits_of(tensor) for tensor in (*model.parameters(), *model.buffers())], ddp


def bits_of(tensor: Tensor) -> bytes:
    """In memory that no budget counts."""
    return tensor.detach().numpy().tobytes()


def loss_of(ddp: DDP, size: int = 8) -> Tensor:
    return nn.functional.cross_entropy(ddp(torch.randn(size, 3, 16, 16)), torch.randint(0, 10, (size,)))


def tight_budget(**options: Any) -> int:
    """A little more than the least."""
    try:
        train(1, **options)
    except reprise.InfeasibleBudget as error:
        return error.smallest_budget_bytes * 21 // 20
    raise AssertionError("a budget of one byte was enough")


def compared(**options: Any) -> dict[str, Any]:
    budget = tight_budget(**options)
    expected, _ = train(None, **{**options, "compiled_first": False})
    found, ddp = train(budget, **options)
    plan = ddp.module.plan
    gradients = sum(1 for _ in ddp.parameters()) - 2 * options.get("unused", False)
    return {"same": [a == b for a, b in zip(expected, found, strict=True)],
            "of first step": options.get("micro", 1) + gradients, "recompute_ns": plan.recompute_ns,
            "measured": plan.measured_peak_bytes, "predicted": plan.peak_bytes, "budget": budget}


def compressing(ddp: DDP) -> None:
    ddp.register_comm_hook(None, fp16_compress_hook)


def hooked(ddp: DDP) -> None:
    """A parameter whose gradient has to go through autograd."""
    ddp.module.head.weight.register_hook(lambda gradient: gradient * 0.5)


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "bucket views": {"gradient_as_bucket_view": True},
    "no_sync": {"micro": 3},
    "no_sync and bucket views": {"micro": 3, "gradient_as_bucket_view": True},
    "unused parameters": {"find_unused_parameters": True, "unused": True},
    "static graph": {"static_graph": True, "unused": True},
    "compression": {"prepare": compressing},
    "a hook": {"prepare": hooked},
    "a batch of another size": {"sizes": (8, 8, 5, 6)},
    "wrapped after it was compiled": {"compiled_first": True},
}


def order_of_buckets() -> list[str]:
    """When buckets leave, beside the end of the step's backward."""
    events: list[str] = []

    def hook(_, bucket):  # type: ignore[no-untyped-def]  # DDP looks at annotations.
        events.append("bucket")
        return dist.all_reduce(bucket.buffer().div_(RANKS), async_op=True).get_future().then(lambda f: f.value()[0])

    end = DataParallel.end_backward
    DataParallel.end_backward = lambda self: (events.append("end"), end(self))[1]  # type: ignore[method-assign]
    try:
        train(1 << 30, prepare=lambda ddp: ddp.register_comm_hook(None, hook), bucket_cap_mb=0.01, sizes=(8, 8))
    finally:
        DataParallel.end_backward = end  # type: ignore[method-assign]
    return events


def error_on_one_rank(fails: Callable[[DDP], Any]) -> dict[str, Any]:
    """Rank 1 fails, both hear of it, and both go on."""
    _, ddp = train(1 << 30, sizes=(8,))
    try:
        fails(ddp)
    except reprise.RepriseError as error:
        told = type(error).__name__, str(error), getattr(error, "smallest_budget_bytes", None)
    ddp.plan.set_budget(1 << 30)
    loss_of(ddp).backward()
    return {"told": told, "gradient": bits_of(ddp.module.head.weight.grad)}


def too_small(ddp: DDP) -> None:
    ddp.plan.set_budget(1000 if dist.get_rank() == 1 else 1 << 30)
    loss_of(ddp)


def raises(ddp: DDP) -> None:
    loss_of(ddp, 13 if dist.get_rank() == 1 else 8)


def takes_memory(ddp: DDP) -> None:
    """Between forward and backward."""
    ddp.plan.set_budget(ddp.plan.peak_bytes)
    loss = loss_of(ddp)
    held = torch.empty(1 << 26 if dist.get_rank() == 1 else 1, dtype=torch.uint8)
    loss.backward()
    del held


def changes_a_weight(ddp: DDP) -> None:
    """Between forward and backward."""
    loss = loss_of(ddp)
    if dist.get_rank() == 1:
        ddp.module.head.weight.detach().mul_(1)
    loss.backward()


def restored() -> list[bool]:
    """A model that was given back trains on as without a plan."""
    left = []
    for budget in (None, 1 << 30):
        _, ddp = train(budget)
        reprise.restore(ddp)
        torch.manual_seed(dist.get_rank())
        loss_of(ddp).backward()
        left.append([bits_of(p.grad) for p in ddp.parameters()])
    return [a == b for a, b in zip(*left, strict=True)]


CASES: dict[str, Callable[[], Any]] = {
    **{name: lambda options=options: compared(**options) for name, options in VARIANTS.items()},  # type: ignore[misc]
    "order of buckets": order_of_buckets,
    "restored": restored,
    "a budget that is too small": lambda: error_on_one_rank(too_small),
    "an error of the model": lambda: error_on_one_rank(raises),
    "memory that was taken": lambda: error_on_one_rank(takes_memory),
    "a weight that was changed": lambda: error_on_one_rank(changes_a_weight),
}


def run(rank: int, folder: str) -> None:
    """All cases in one process group."""
    leave_results(rank, folder, lambda: {name: case() for name, case in CASES.items()})
