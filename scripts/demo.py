"""Trains ResNet-50 on the CPU, plain and inside half of its memory, and compares.

Both trainings begin with the same parameters and see the same batches. The loss of every step is
printed, and a table compares the peaks as the allocator counts them, the times, and the last losses,
which must have the same bits. The plan goes to out/: as a page (resnet50.html), as text
(resnet50.txt), and as files for the command reprise (resnet50.plan.json, resnet50.graph.json).
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from models.resnet import ResNet  # noqa: E402

import reprise  # noqa: E402
from reprise import memory  # noqa: E402

CPU = torch.device("cpu")


@dataclass
class Training:
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peak_bytes: int = 0


def batches(steps: int, batch: int, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(batch, 3, size, size, generator=generator),
             torch.randint(1000, (batch,), generator=generator)) for _ in range(steps)]


def train(model: nn.Module, data: list[tuple[torch.Tensor, torch.Tensor]], label: str) -> Training:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    result = Training()
    for number, (images, labels) in enumerate(data, 1):
        optimizer.zero_grad()
        there = memory.storage_bytes([*model.parameters(), *model.buffers(), images], CPU)
        memory.reset_peak(CPU)
        entry = memory.allocated_bytes(CPU)
        begin = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        result.seconds.append(time.perf_counter() - begin)
        result.peak_bytes = max(result.peak_bytes, there + memory.peak_bytes(CPU) - entry)
        result.losses.append(loss.item())
        optimizer.step()
        print(f"  {label} step {number}: loss {loss.item():.6f}, {result.seconds[-1]:.1f} s", flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--out", type=Path, default=ROOT / "out", help="the folder for the plan")
    parser.add_argument("--share", type=float, default=0.5, help="the budget, as a share of the plain peak")
    options = parser.parse_args()
    memory.install_meter()
    torch.manual_seed(0)
    model = ResNet(50).train()
    twin = copy.deepcopy(model)
    data = batches(options.steps, options.batch, options.size)
    size = reprise.format_bytes

    print(f"ResNet-50, batch {options.batch}, {options.size}x{options.size}, on the CPU "
          f"({torch.get_num_threads()} threads)\n")
    plain = train(twin, data, "plain  ")
    del twin
    budget = int(options.share * plain.peak_bytes)
    print(f"\n  model = reprise.compile(model, budget=\"{size(budget)}\")\n"
          "  (the first step also captures the model, measures its operators and plans)")
    reprise.compile(model, budget, waiting_seconds=60)  # Every step waits for the final plan, which is the one shown.
    planned = train(model, data, "planned")

    same = plain.losses == planned.losses
    inside = planned.peak_bytes <= budget
    rows = [
        ("peak", size(plain.peak_bytes), size(planned.peak_bytes),
         f"{100 * planned.peak_bytes / plain.peak_bytes:.0f} %"),
        ("budget", "", size(budget), "kept" if inside else "EXCEEDED"),
        ("predicted peak", "", size(model.plan.peak_bytes), ""),
        ("step", f"{min(plain.seconds):.2f} s", f"{min(planned.seconds):.2f} s",
         f"{min(planned.seconds) / min(plain.seconds):.2f} x"),
        ("loss of the last step", f"{plain.losses[-1]:.9f}", f"{planned.losses[-1]:.9f}",
         "the same bits" if same else "DIFFERENT"),
        ("profiled / planned in", "", f"{model.plan.profile_seconds:.1f} s / {model.plan.planning_seconds:.1f} s", ""),
    ]
    print(f"\n{'':<24}{'plain':>14}{'planned':>18}")
    for name, left, right, note in rows:
        print(f"{name:<24}{left:>14}{right:>18}   {note}")

    print("\nThe page also shows the best plans at other budgets, which takes some seconds to find.", flush=True)
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    text, plan = folder / "resnet50.txt", folder / "resnet50.plan.json"
    text.write_text(f"{reprise.explain(model)}\n")
    model.plan.save(plan)
    page = model.plan.report(folder / "resnet50.html")
    print(f"\n{page}\n  what is kept and what is computed again, as a page\n{text}\n  the same as text\n{plan}\n"
          "  the plan; with resnet50.graph.json beside it, for the command reprise")
    return 0 if same and inside else 1


if __name__ == "__main__":
    sys.exit(main())
