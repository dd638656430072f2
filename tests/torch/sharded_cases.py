"""What two processes do for test_sharded.py. Each case returns something that can be compared outside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from several_processes import RANKS, leave_results
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from transformers import GPT2Config, GPT2LMHeadModel

import reprise

WIDTH, WORDS, LENGTH = 32, 64, 32
LARGE = 1 << 30


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.grow, self.shrink = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 13:
            raise ValueError("thirteen texts")
        return x + self.dropout(self.shrink(nn.functional.gelu(self.grow(self.norm(x)))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = GPT2Config(vocab_size=WORDS, n_embd=WIDTH, n_layer=3, n_head=2, n_positions=LENGTH, use_cache=False)
        self.model = GPT2LMHeadModel(config)
        self.blocks = self.model.transformer.h

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.model(words).logits
        return logits


def sharded(kind: type[Net] | type[Gpt2] = Net, units: str = "blocks", **options: Any) -> nn.Module:
    torch.manual_seed(0)
    model = kind()
    if units == "blocks":
        for block in model.blocks:
            fully_shard(block, **options)
    return fully_shard(model, **options) if units != "none" else model


def loss_of(model: nn.Module, size: int = 8) -> Tensor:
    words = torch.randint(0, WORDS, (size, LENGTH))
    return nn.functional.cross_entropy(model(words).float().flatten(0, 1), words.flatten())


def bits_of(tensor: Tensor) -> bytes:
    """In memory that no budget counts."""
    local: Tensor = getattr(tensor, "_local_tensor", tensor).detach()
    return local.view(torch.uint8).numpy().tobytes() if local.dim() else local.numpy().tobytes()


def train(budget: int | None, *, plans: bool = True, micro: int = 1, clip: bool = False, sizes: tuple[int, ...] = (8,) * 3,
          begin: Callable[[nn.Module], None] = lambda model: None, **options: Any) -> tuple[list[bytes], nn.Module, list[int]]:
    """Trains steps, and returns everything that has to be the same, the model, and the highest peak of each step."""
    model = sharded(**options)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    if plans:
        named = {"regions": list(model.blocks)} if options.get("units") == "none" else {}
        reprise.compile(model, budget, optimizer=optimizer, planning_seconds=3, profile="roofline", **named)
    begin(model)
    left, peaks = [], []
    for step, size in enumerate(sizes):
        for part in range(micro):
            torch.manual_seed(100 * dist.get_rank() + 10 * step + part)
            if micro > 1:
                model.set_requires_gradient_sync(part == micro - 1)
            loss = loss_of(model, size)
            loss.backward()
            left.append(bits_of(loss))
            if plans:
                peaks.append(model.plan.measured_peak_bytes)
        if clip:
            left.append(bits_of(nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        left += [bits_of(p.grad) for p in model.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
    return left + [bits_of(tensor) for tensor in (*model.parameters(), *model.buffers())], model, peaks


def compared(share: float, **options: Any) -> dict[str, Any]:
    """At a share of the peak without recomputation."""
    expected, _, _ = train(None, plans=False, **options)
    free, _, peaks = train(None, **options)
    budget = int(share * max(peaks))
    found, model, peaks = train(budget, **options)
    return {"same": [a == b for a, b in zip(expected, found, strict=True)], "same without": expected == free,
            "recompute_ns": model.plan.recompute_ns, "measured": peaks, "predicted": model.plan.peak_bytes, "budget": budget,
            "late": 2 * max(gradient_bytes(block) for block in model.blocks)}


def gradient_bytes(module: nn.Module) -> int:
    """The bytes of gradients of whole parameters. Threads of gloo may hold those of the last two units after they were
    reduced."""
    return sum(p.numel() * p.element_size() for p in module.parameters())


BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "kept gathered": {"reshard_after_forward": False, "clip": True},
    "mixed precision": {"mp_policy": BF16, "sizes": (8, 8)},
    "accumulation": {"micro": 3, "clip": True, "sizes": (8, 8)},
    "batches of other sizes": {"sizes": (8, 8, 5, 5, 8)},
    "one unit": {"units": "one"},
    "not sharded": {"units": "none"},
    "a model of transformers": {"kind": Gpt2},
}


@contextlib.contextmanager
def told(into: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except reprise.RepriseError as error:
        into["told"] = type(error).__name__, str(error), getattr(error, "smallest_budget_bytes", None)


def refused_on_one_rank() -> dict[str, Any]:
    """Rank 1 has no room in a step of a kind that both know; both hear of it, and both go on."""
    _, model, _ = train(LARGE)
    result: dict[str, Any] = {}
    model.plan.set_budget(1000 if dist.get_rank() == 1 else LARGE)
    with told(result):
        loss_of(model)
    model.plan.set_budget(LARGE)
    loss_of(model).backward()
    return result | {"gradient": bits_of(model.head.weight.grad)}


def fails_on_one_rank() -> dict[str, Any]:
    """The model of rank 1 raises an error in its first step of that size."""
    _, model, _ = train(LARGE)
    result: dict[str, Any] = {}
    with told(result):
        loss_of(model, 13 if dist.get_rank() == 1 else 12)
    return result


def fails_in_backward_on_one_rank() -> dict[str, Any]:
    """Something takes memory on rank 1 before the backward of its regions begins, in the first step."""
    model = reprise.compile(sharded(), 8 << 20, planning_seconds=1, profile="roofline")
    words = torch.randint(0, WORDS, (8, LENGTH))
    logits, held = model(words), []
    if dist.get_rank() == 1:
        logits.register_hook(lambda gradient: held.append(torch.empty(16 << 20, dtype=torch.uint8)))
    result: dict[str, Any] = {}
    with told(result):
        logits.sum().backward()
    return result


def fails_while_planning_on_one_rank() -> dict[str, Any]:
    _, model, _ = train(LARGE)
    if dist.get_rank() == 1:
        def future_bytes(device: torch.device) -> int:
            raise ValueError("the optimizer does not say what it needs")

        model.plan.divider.future_bytes = future_bytes
    result: dict[str, Any] = {}
    with told(result):
        loss_of(model)
    return result


def too_small_from_the_start() -> dict[str, Any]:
    """The budget that the refusal names is enough."""
    result: dict[str, Any] = {}
    with told(result):
        train(1000)
    again: dict[str, Any] = {}
    with told(again):
        train(result["told"][2])
    return result | {"again": again}


def one_tracing() -> int:
    """Blocks are alike, and are traced once."""
    _, model, _ = train(LARGE, sizes=(8,))
    return len(model.plan.sessions)


def restored() -> list[bool]:
    """A model that was given back trains on as without a plan."""
    left = []
    for plans in (False, True):
        _, model, _ = train(LARGE, plans=plans)
        reprise.restore(model)
        torch.manual_seed(dist.get_rank())
        loss_of(model).backward()
        left.append([bits_of(p.grad) for p in model.parameters()])
        assert not any("forward" in module.__dict__ for module in model.modules())
    return [a == b for a, b in zip(*left, strict=True)]


class Stage(nn.Module):
    def __init__(self, is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH) if is_first else None
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS) if is_last else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)


SCHEDULES = {"1F1B": (Schedule1F1B, 1), "interleaved 1F1B": (ScheduleInterleaved1F1B, 2)}


def pipelined(name: str) -> tuple[Any, list[nn.Parameter]]:
    """A schedule of eight micro-batches, and the parameters of this process."""
    torch.manual_seed(0)
    kind, count = SCHEDULES[name]
    indexes = [dist.get_rank() + i * RANKS for i in range(count)]
    modules = [Stage(index == 0, index == count * RANKS - 1) for index in indexes]
    stages = [PipelineStage(module, index, count * RANKS, torch.device("cpu"))
              for module, index in zip(modules, indexes, strict=True)]

    def loss(logits: Tensor, words: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())

    return kind(stages if count > 1 else stages[0], 8, loss_fn=loss), [p for m in modules for p in m.parameters()]


def run_schedule(name: str, budget: int | None, plans: bool = True) -> tuple[list[bytes], Any, list[int]]:
    schedule, parameters = pipelined(name)
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9)
    if plans:
        reprise.compile(schedule, budget, optimizer=optimizer, planning_seconds=1)
    left, peaks = [], []
    for step in range(3):
        torch.manual_seed(step)
        words = torch.randint(0, WORDS, (64, LENGTH))
        losses: list[Tensor] = []
        schedule.step(*([words] if dist.get_rank() == 0 else []), target=words, losses=losses)
        left += [bits_of(loss) for loss in losses] + [bits_of(p.grad) for p in parameters]
        if plans:
            peaks.append(schedule.plan.measured_peak_bytes)
        optimizer.step()
        optimizer.zero_grad()
    return left, schedule, peaks


def pipeline_compared(name: str) -> dict[str, Any]:
    expected, _, _ = run_schedule(name, None, plans=False)
    free, _, peaks = run_schedule(name, None)
    budget = int(0.85 * max(peaks))
    found, schedule, peaks = run_schedule(name, budget)
    result = {"same": [a == b for a, b in zip(expected, found, strict=True)], "same without": expected == free,
              "recompute_ns": schedule.plan.recompute_ns, "measured": peaks, "predicted": schedule.plan.peak_bytes,
              "budget": budget, "calls": len(reprise.explain(schedule).parts)}
    reprise.restore(schedule)
    assert "step" not in schedule.__dict__
    return result


def too_small_for_one_stage() -> dict[str, Any]:
    """A refusal of one stage before a step is raised on all."""
    _, schedule, _ = run_schedule("1F1B", LARGE)
    result: dict[str, Any] = {}
    schedule.plan.set_budget(1000 if dist.get_rank() == 1 else LARGE)
    words = torch.randint(0, WORDS, (64, LENGTH))
    with told(result):
        schedule.step(*([words] if dist.get_rank() == 0 else []), target=words)
    return result


CASES: dict[str, Callable[[], Any]] = {
    **{name: lambda options=options: compared(**{"share": 0.8, **options})  # type: ignore[misc]
       for name, options in VARIANTS.items()},
    "one tracing": one_tracing,
    "restored": restored,
    "refused on one rank": refused_on_one_rank,
    "too small": too_small_from_the_start,
    **{name: lambda name=name: pipeline_compared(name) for name in SCHEDULES},  # type: ignore[misc]
    "too small for one stage": too_small_for_one_stage,
    "fails on one rank": fails_on_one_rank,
    "fails while planning": fails_while_planning_on_one_rank,
    "fails in backward": fails_in_backward_on_one_rank,
}


def run(rank: int, folder: str) -> None:
    """All cases in one process group."""
    leave_results(rank, folder, lambda: {name: case() for name, case in CASES.items()})
