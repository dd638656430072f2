"""How long a training step takes on the CPU in an arena, against the same step without one and against plain PyTorch.

    make build && python3 bench/arena_steps.py [-o FILE]

Large tensors of PyTorch's CPU allocator are mapped and unmapped one by one, and every page faults when it is first written;
the pages of an arena fault once. The three ways take turns in one process with one thread, so that the machine's mood
falls on all of them alike; the first step of a turn is not counted. Page faults are counted by the kernel. Bits are
compared at the end."""

import argparse
import copy
import json
import os
import platform
import resource
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import reprise

TURNS = 3
ROOT = Path(__file__).resolve().parents[1]


def convolutions() -> tuple[nn.Module, Tensor]:
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)), torch.randn(32, 3, 128, 128)


def residual() -> tuple[nn.Module, Tensor]:
    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                       nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x + self.inner(x))

    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Block(32) for _ in range(4)), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(32, 10)), torch.randn(16, 3, 64, 64)


def transformer() -> tuple[nn.Module, Tensor]:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Linear(128, 10)), torch.randn(16, 128, 128)


def perceptron() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10)), torch.randn(64, 64)


MODELS = {"convolutions 32x3x128x128": convolutions, "residual 16x3x64x64": residual, "transformer 16x128x128": transformer,
          "perceptron 64x64": perceptron}


def step(model: nn.Module, data: Tensor) -> tuple[float, int]:
    """Seconds of processor time, and page faults, of one step."""
    model.zero_grad()
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
    model(data).square().mean().backward()
    return time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def same_bits(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x.grad, y.grad) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def measure(name: str, rounds: int, budget_share: float | None) -> dict:
    torch.manual_seed(0)
    plain, data = MODELS[name]()
    ways = {"plain": plain, "without": copy.deepcopy(plain), "arena": copy.deepcopy(plain)}
    budget = None
    if budget_share is not None:
        probe = reprise.compile(copy.deepcopy(plain), arena=False)
        step(probe, data)
        budget = int(probe.plan.peak_bytes * budget_share)
        reprise.restore(probe)
    reprise.compile(ways["without"], budget, arena=False)
    reprise.compile(ways["arena"], budget, arena=True)
    for model in ways.values():
        for _ in range(3):
            step(model, data)
    for model in (ways["without"], ways["arena"]):
        _ = model.plan.peak_bytes  # waits for the search
        step(model, data)
    taken: dict[str, list[tuple[float, int]]] = {way: [] for way in ways}
    for _ in range(TURNS):
        for way, model in ways.items():
            step(model, data)  # under a budget, the blocks of other models give way, and have to be touched again
            taken[way] += [step(model, data) for _ in range(rounds)]
    use = ways["arena"].plan.arena
    row = {"model": name, "budget_share": budget_share, "same_bits": same_bits(ways["plain"], ways["arena"]),
           "in_arena": ways["arena"].plan.at_work.arena_bytes > 0, "block_bytes": use.block_bytes,
           "arena_over_load": round(use.arena_bytes / max(1, use.load_bytes), 4), "unplanned": use.unplanned,
           "recompute_percent": {way: round(100 * ways[way].plan.recompute_ns / ways[way].plan.time_ns, 2)
                                 for way in ("without", "arena")}}
    for way, runs in taken.items():
        row[f"{way}_ms"] = round(1000 * statistics.median(seconds for seconds, _ in runs), 2)
        row[f"{way}_faults"] = statistics.median(faults for _, faults in runs)
    row["arena_over_without"] = round(row["arena_ms"] / row["without_ms"], 3)
    row["arena_over_plain"] = round(row["arena_ms"] / row["plain_ms"], 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "arena_steps.json")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in MODELS:
        for share in (None,) if "perceptron" in name else (None, 0.9):  # it is mostly parameters
            rows.append(measure(name, options.rounds if "perceptron" not in name else 30 * options.rounds, share))
            print(json.dumps(rows[-1]), flush=True)
    result = {"command": "python3 bench/arena_steps.py", "machine": platform.machine(), "cores": os.cpu_count(),
              "torch": torch.__version__, "threads": 1, "rows": rows}
    options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
