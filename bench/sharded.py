"""FSDP2 with and without a budget, and reprise.shard, beside checkpointed blocks: bits, peak, and the time of a step.

    python bench/sharded.py [--device cuda] [--ranks 1] [--samples 15] [--layers 8] [--without KIND] [-o FILE]

A GPT-2 whose blocks are units of fully_shard is trained in several ways, whose steps come in turns: as it is, with every block
in torch.utils.checkpoint, and planned by Reprise without a budget, at 80 % of the plain peak and at the peak of the checkpointed
one; and in these three also with reprise.shard in the place of fully_shard ("sharded"). Medians are compared with the plain way.
Peaks are those of a process, from the call of the model to the end of backward, with its part of the parameters. Bits are those
of losses, gradients and parameters after three steps. One process per GPU talks through NCCL, two on one GPU or on the CPU
through gloo.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from typing import Any

import torch
import torch.distributed as dist
from processes import Process, in_processes, parser_of, seconds_of
from torch import Tensor
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

import reprise
from reprise import memory, planning
from reprise.local_tensors import local_tensors

PLAIN, CHECKPOINTED, PLANNED, SHARDED = "fsdp2", "checkpointed", "planned", "sharded"


class Way:
    """A model that is trained in one way."""

    def __init__(self, device: torch.device, layers: int, kind: str) -> None:
        torch.manual_seed(0)
        self.device = device
        width, length, batch, words = (1024, 1024, 8, 50257) if device.type == "cuda" else (256, 128, 8, 2000)
        config = GPT2Config(vocab_size=words, n_embd=width, n_layer=layers, n_head=width // 64, n_positions=length,
                            use_cache=False, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.0)
        self.model = GPT2LMHeadModel(config).to(device).train()
        if kind == SHARDED:
            reprise.shard(self.model, init_device_mesh(device.type, (dist.get_world_size(),)))
        else:
            self.fully_shard(kind == CHECKPOINTED)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.words = torch.randint(0, words, (batch, length), device=device)
        self.planned = False

    def fully_shard(self, checkpointed: bool) -> None:
        blocks = self.model.transformer.h
        for i, block in enumerate(blocks):
            if checkpointed:
                blocks[i] = checkpoint_wrapper(block, CheckpointImpl.NO_REENTRANT)
            fully_shard(blocks[i])
        fully_shard(self.model)

    def plan(self, budget: int | None) -> None:
        reprise.compile(self.model, budget, optimizer=self.optimizer)
        self.planned = True

    def step(self) -> Tensor:
        loss = self.model(self.words, labels=self.words).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def bits(self) -> list[bytes]:
        torch.manual_seed(1)
        losses = [self.step() for _ in range(3)]
        self.model(self.words, labels=self.words).loss.backward()
        tensors = local_tensors([*losses, *self.model.parameters()])
        self.optimizer.zero_grad()
        return [tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in tensors]

    def seconds(self) -> float:
        return seconds_of(self.step, self.device)

    def peak_bytes(self) -> int:
        if self.planned:
            self.step()
            return int(self.model.plan.measured_peak_bytes)
        own = memory.storage_bytes(local_tensors(self.model.parameters()), self.device)
        memory.reset_peak(self.device)
        before = memory.allocated_bytes(self.device)
        self.model(self.words, labels=self.words).loss.backward()
        peak = own + memory.peak_bytes(self.device) - before
        self.optimizer.zero_grad()
        return peak


def measure(device: torch.device, layers: int, samples: int, without: str | None) -> list[dict[str, Any]]:
    memory.install_meter()
    rivals = (PLAIN, CHECKPOINTED)
    kinds = [kind for kind in (PLANNED, SHARDED) if kind != without]
    # All models are there before the first one is compiled, because budgets count what is allocated from then on.
    ways = {name: Way(device, layers, name.partition(",")[0])
            for name in (*rivals, *(kind + budget for kind in kinds for budget in ("", ", 80 %", ", as checkpointed")))}
    expected = {name: ways[name].bits() for name in rivals}
    peaks = {name: ways[name].peak_bytes() for name in rivals}
    beside = memory.allocated_bytes(device) if device.type == "cuda" else 0
    own = memory.storage_bytes(local_tensors(ways[PLAIN].model.parameters()), device)
    others = max(0, beside - own)  # There, budgets count the other models, too.
    budgets: dict[str, int | None] = {}
    for kind in kinds:
        budgets |= {kind: None, f"{kind}, 80 %": others + peaks[PLAIN] * 8 // 10,
                    f"{kind}, as checkpointed": others + peaks[CHECKPOINTED]}
    for name, budget in budgets.items():
        ways[name].plan(budget)
        expected[name] = ways[name].bits()
        peaks[name] = ways[name].peak_bytes() - others
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(samples):
        for name, way in ways.items():
            times[name].append(way.seconds())
    rows = []
    for name, way in ways.items():
        row = {"way": name, "peak_bytes": peaks[name], "budget_bytes": budgets.get(name),
               "ms": round(1e3 * statistics.median(times[name]), 2),
               "ratio_to_fsdp2": round(statistics.median(times[name]) / statistics.median(times[PLAIN]), 4),
               "same": expected[name] == expected[PLAIN]}
        if way.planned:
            plan = way.model.plan
            if not name.startswith(SHARDED):
                row |= {"regions": len(reprise.explain(way.model).parts), "traced": len(plan.sessions)}
            row |= {"preparation_s": round(sum(plan.preparation_seconds.values()), 2),
                    "recomputation_percent": round(planning.recomputation_percent(plan.recompute_ns, plan.time_ns), 2)}
        rows.append(row)
    return rows


def run(process: Process, options: argparse.Namespace) -> None:
    rows = measure(process.device, options.layers, options.samples, options.without)
    if process.rank == 0:
        known = {**process.known, "layers": options.layers, "samples": options.samples}
        options.output.write_text(json.dumps({**known, "results": rows}, indent=1) + "\n")
        for row in rows:
            print(row, flush=True)


def main() -> int:
    parser = parser_of(__doc__, "sharded")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--without", choices=[PLANNED, SHARDED])
    in_processes(run, parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
