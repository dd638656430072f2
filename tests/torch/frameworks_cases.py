"""What two processes do for test_frameworks.py: accelerate and Lightning hand over models of fully_shard (FSDP2)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import lightning
import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy
from several_processes import RANKS, leave_results, like_torchrun, part_of
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard

import reprise

WIDTH, STEPS = 32, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(4)))


def batches() -> Tensor:
    torch.manual_seed(1 + dist.get_rank())
    return torch.randn(STEPS, 256, WIDTH)


def by_accelerate(budget: int | None) -> nn.Module:
    accelerator = Accelerator(cpu=True)
    # On GPUs, `prepare` does this. On the CPU it leaves plugins of FSDP out.
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Block"],
        cpu_ram_efficient_loading=False)
    model = fsdp2_prepare_model(accelerator, net())
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
    if budget is not None:
        reprise.compile(model, budget, optimizer=optimizer, planning_seconds=1)
    for batch in batches():
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return model


class Lit(lightning.LightningModule):
    def __init__(self, budget: int | None) -> None:
        super().__init__()
        self.net, self.budget = net(), budget

    def configure_model(self) -> None:
        if isinstance(self.net, FSDPModule):
            return
        for module in (*self.net, self.net):
            fully_shard(module, mesh=self.device_mesh["data_parallel"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
        if self.budget is not None:
            reprise.compile(self.net, self.budget, optimizer=optimizer, planning_seconds=1)
        return optimizer

    def training_step(self, batch: Tensor, _: int) -> Tensor:
        return self.net(batch).square().mean()


def by_lightning(budget: int | None) -> nn.Module:
    model = Lit(budget)
    strategy = ModelParallelStrategy(data_parallel_size=RANKS, tensor_parallel_size=1)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=RANKS, strategy=strategy, plugins=[TorchElasticEnvironment()], max_epochs=1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        use_distributed_sampler=False)
    trainer.fit(model, torch.utils.data.DataLoader(batches(), batch_size=None))
    return model.net


WAYS: dict[str, Callable[[int | None], nn.Module]] = {"accelerate": by_accelerate, "lightning": by_lightning}


def compared(way: Callable[[int | None], nn.Module]) -> dict[str, Any]:
    budget = int(0.8 * way(1 << 30).plan.measured_peak_bytes)
    plain, planned = way(None), way(budget)
    return {"same": [part_of(a) == part_of(b) for a, b in zip(plain.parameters(), planned.parameters(), strict=True)],
            "regions": len(reprise.explain(planned).parts), "recompute_ns": planned.plan.recompute_ns,
            "measured": planned.plan.measured_peak_bytes, "budget": budget}


def run(rank: int, folder: str, port: int) -> None:
    like_torchrun(rank, port)
    leave_results(rank, folder, lambda: {name: compared(way) for name, way in WAYS.items()})


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
