"""What coalesced gathers would bring to steps of `reprise.shard`: time and memory of a call, and where plans could use it.

    scripts/python.sh bench/coalesced.py --ranks 2 [--samples 15] [--layers 2] [-o FILE]

The 12 parameters of a block of GPT-2 are gathered in three ways that come in turns: one call each, waited for at once; one call
each, all begun before the first is waited for, as plans may do; and in one coalesced call. Times are medians of the slowest
process, and "beside" is the most memory that is taken beside the results. Then GPT-2s are trained with `reprise.shard`, without a
budget and at 80 % of that peak, their steps in turns with such gathers. "alone" counts the starts of the plan that have none of
the same kind next to them, "fewer" calls would be saved if all that stand side by side shared one, and "at_most_percent" of the
step is what these calls take according to the gathers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from processes import Process, in_processes, parser_of, seconds_of
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from transformers import GPT2Config, GPT2LMHeadModel

import reprise
from reprise import memory
from reprise.planning import ops_in

_ops = torch.ops._c10d_functional


def block(width: int) -> list[tuple[int, ...]]:
    layers = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    return [*layers, *((columns,) for _, columns in layers), *[(width,)] * 4]


def parts_of(width: int, device: torch.device) -> list[Tensor]:
    return [torch.randn(shape[0] // dist.get_world_size(), *shape[1:], device=device) for shape in block(width)]


def ways_of(parts: list[Tensor]) -> dict[str, Callable[[], list[Tensor]]]:
    group, ranks = dist.group.WORLD.group_name, dist.get_world_size()

    def begun() -> list[Tensor]:
        return [_ops.all_gather_into_tensor(part, ranks, group) for part in parts]

    return {
        "one by one": lambda: [_ops.wait_tensor(_ops.all_gather_into_tensor(part, ranks, group)) for part in parts],
        "begun together": lambda: [_ops.wait_tensor(result) for result in begun()],
        "coalesced": lambda: [_ops.wait_tensor(result)
                              for result in _ops.all_gather_into_tensor_coalesced(parts, ranks, group)],
    }


def slowest(seconds: float) -> float:
    most = torch.tensor(seconds)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def gathers(device: torch.device, width: int, samples: int) -> dict[str, Any]:
    parts = parts_of(width, device)
    ways = ways_of(parts)
    bits = {name: [result.cpu() for result in way()] for name, way in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    beside = dict.fromkeys(ways, 0)
    results = dist.get_world_size() * sum(part.nbytes for part in parts)
    for _ in range(samples):
        for name, way in ways.items():
            dist.barrier()
            before = memory.allocated_bytes(device)
            memory.reset_peak(device)
            times[name].append(slowest(seconds_of(way, device)))
            beside[name] = max(beside[name], memory.peak_bytes(device) - before - results)
    return {"width": width, "result_bytes": results, "beside_bytes": beside,
            "ms": {name: round(1e3 * statistics.median(taken), 2) for name, taken in times.items()},
            "same": all(torch.equal(a, b) for other in bits.values() for a, b in zip(bits["coalesced"], other, strict=True))}


def starts_of(plan: Any) -> dict[str, int]:
    graph = plan.graph
    kinds = groupby(ops_in(plan.actions.actions), lambda op: (graph.stream(op), graph.op_name(op).rstrip("_0123456789")))
    runs = [len(list(run)) for (stream, _), run in kinds if stream != 0]
    return {"starts": sum(runs), "alone": runs.count(1), "fewer": sum(runs) - len(runs)}


def plans(device: torch.device, width: int, layers: int, samples: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    length, batch, words = width // 2, 8, 2000
    config = GPT2Config(vocab_size=words, n_embd=width, n_layer=layers, n_head=width // 32, n_positions=length, use_cache=False)
    model = GPT2LMHeadModel(config).to(device).train()
    reprise.shard(model, init_device_mesh(device.type, (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    reprise.compile(model, optimizer=optimizer)
    inputs = torch.randint(0, words, (batch, length), device=device)

    def step() -> None:
        model(inputs, labels=inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    parts = parts_of(width, device)
    gathering = ways_of(parts)
    ways = (step, gathering["begun together"], gathering["coalesced"])
    rows = []
    for budget in (None, model.plan.peak_bytes * 8 // 10):
        model.plan.set_budget(budget)
        for _ in range(3):
            step()
        taken = [[slowest(seconds_of(way, device)) for way in ways] for _ in range(samples)]
        ms, begun_ms, coalesced_ms = (1e3 * statistics.median(column) for column in zip(*taken, strict=True))
        starts = starts_of(model.plan)
        most = 100 * starts["fewer"] * (begun_ms - coalesced_ms) / (len(parts) - 1) / ms
        rows.append({"width": width, "budget_bytes": budget, "ms": round(ms, 1), **starts, "at_most_percent": round(most, 1)})
    return rows


def run(process: Process, options: argparse.Namespace) -> None:
    memory.install_meter()
    rows = [gathers(process.device, width, options.samples) for width in (64, 256, 768)]
    trained = [row for width in (64, 256) for row in plans(process.device, width, options.layers, options.samples)]
    if process.rank == 0:
        known = {**process.known, "layers": options.layers, "samples": options.samples}
        options.output.write_text(json.dumps({**known, "gathers": rows, "plans": trained}, indent=1) + "\n")
        for row in (*rows, *trained):
            print(row, flush=True)


def main() -> int:
    parser = parser_of(__doc__, "coalesced")
    parser.add_argument("--layers", type=int, default=2)
    in_processes(run, parser.parse_args())
    return 0


if __name__ == "__main__":
    sys.exit(main())
