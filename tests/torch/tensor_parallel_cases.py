"""What two processes do for test_tensor_parallel.py. Each case returns something that can be compared outside."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from several_processes import RANKS, Training, leave_results, local_of, part_of
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import reprise
from reprise.planning import ops_in

WIDTH, WORDS, LENGTH, BATCH = 32, 48, 16, 8
SLOW = 300.0  # seconds until the last process has heard of an error


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.dropout(nn.functional.gelu(self.up(self.norm(x))), 0.1))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(3)))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        if words.shape[0] == 13 and dist.get_rank() == 1:
            raise ValueError("thirteen sentences")
        return self.head(self.blocks(self.words(words)))


def with_reductions(net: Net, mesh: DeviceMesh) -> None:
    """Every block ends with an all-reduce; the words and the head are divided, too."""
    parallelize_module(net, mesh, {"words": RowwiseParallel(input_layouts=Replicate()),
                                   "head": ColwiseParallel(output_layouts=Replicate())})
    for block in net.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def with_sequences(net: Net, mesh: DeviceMesh) -> None:
    """Between the blocks, tensors are divided along the sequence: gathers and reduce-scatters. Outputs are distributed."""
    parallelize_module(net, mesh, {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate(), use_local_output=False)})
    for block in net.blocks:
        parallelize_module(block, mesh, {
            "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False)})


KINDS: dict[str, Callable[[Net, DeviceMesh], None]] = {"reductions": with_reductions, "sequences": with_sequences}


class InParallel(Training):
    def __init__(self, kind: str, mesh: DeviceMesh, **options: Any) -> None:
        torch.manual_seed(0)
        model = Net()
        if kind != "whole":
            KINDS[kind](model, mesh)
        super().__init__(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
        if options:
            reprise.compile(model, optimizer=self.optimizer, planning_seconds=1, **options)

    def loss(self, step: int = 0, batch: int = BATCH) -> Tensor:
        torch.manual_seed(100 + step)
        words = torch.randint(0, WORDS, (batch, LENGTH + 1))
        logits = self.model(words[:, :-1])
        logits = logits.full_tensor() if isinstance(logits, DTensor) else logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


@functools.cache
def planned(kind: str, mesh: DeviceMesh) -> InParallel:
    return InParallel(kind, mesh, budget=None)


@functools.cache
def eager(kind: str, mesh: DeviceMesh) -> InParallel:
    return InParallel(kind, mesh)


def calls_of(run: Callable[[], Any]) -> list[tuple[str, str]]:
    """What a function calls, in order, with the shapes of operands."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        run()
    calls = sorted(profile.events(), key=lambda event: event.time_range.start)
    return [(call.name, str(call.input_shapes)) for call in calls]


def log_of(run: Callable[[], Any]) -> list[tuple[str, str]]:
    """The collectives that a function makes."""
    return [call for call in calls_of(run) if call[0].startswith("_c10d_functional::") and not call[0].endswith("wait_tensor")]


def actions_of(training: Training) -> str:
    return str(training.model.plan.actions.actions)


def budgets(kind: str, mesh: DeviceMesh) -> dict[str, Any]:
    """The bits at several budgets, and what they take."""
    expected, expected_sums = eager(kind, mesh).train(), eager(kind, mesh).train(micro=2)
    training = planned(kind, mesh)
    plan = training.model.plan
    found: dict[str, Any] = {"none": {"same": training.train() == expected, "recompute_ns": plan.recompute_ns}}
    found["once"] = {plan.graph.op_name(op): plan.graph.once(op) for op in range(plan.graph.num_ops)}
    plain = plan.peak_bytes
    least = training.least_budget()
    for name, budget in {"half": (least + plain) // 2, "tight": least * 51 // 50}.items():
        plan.set_budget(budget)
        found[name] = {"same": training.train() == expected, "recompute_ns": plan.recompute_ns, "budget": budget,
                       "predicted": plan.peak_bytes, "measured": training.peaks[-1], "most": max(training.peaks),
                       "plan": actions_of(training),
                       "log": log_of(training.step), "repeated": repeated(training)}
    plan.set_budget(budget + sum(len(bits) for bits in training.beginning))
    found["sums"] = training.train(micro=2) == expected_sums
    return found


def repeated(training: Training) -> list[str]:
    """The ops that run more than once in a step."""
    plan = training.model.plan
    runs = ops_in(plan.actions.actions)
    return [plan.graph.op_name(op) for op in set(runs) if runs.count(op) > 1]


class Ballast:
    """Memory that one of the processes holds beside the model."""

    def __init__(self, size: int) -> None:
        self.held = torch.empty(size if dist.get_rank() == 1 else 1, dtype=torch.uint8)


def ballast(mesh: DeviceMesh) -> dict[str, Any]:
    """One process has less room than the other from some step on."""
    expected = eager("reductions", mesh).train(5)
    training = planned("reductions", mesh)
    plan = training.model.plan
    plan.set_budget(None)
    training.train(1)
    least, plain = training.least_budget(), plan.peak_bytes
    plan.set_budget(plain)
    left, seen = [], {}
    held = None
    training.train(0)
    for step, (name, size) in enumerate({"before": 0, "some": (plain - least) // 2, "after": 0}.items()):
        held = Ballast(size) if size else None
        left.append(training.step(step))
        seen[name] = {"recompute_ns": plan.recompute_ns, "plan": actions_of(training),
                      "measured": plan.measured_peak_bytes, "budget": plain}
    held = Ballast(2 * (plain - least))
    seen["too much"] = told(training.loss)
    del held
    left += [training.step(step) for step in (3, 4)]
    left.append([part_of(tensor) for tensor in training.model.parameters()])
    return {"same": [part for step in left for part in step] == expected, **seen}


def told(run: Callable[[], Any]) -> dict[str, Any]:
    """What a process hears that has an error, or of one."""
    begin = time.monotonic()
    try:
        run()
    except reprise.RepriseError as error:
        return {"kind": type(error).__name__, "says": str(error), "smallest": getattr(error, "smallest_budget_bytes", None),
                "soon": time.monotonic() - begin < SLOW}
    return {"kind": "nothing"}


def errors(mesh: DeviceMesh) -> dict[str, Any]:
    """One process has an error, both hear of it, and both go on."""
    expected = eager("reductions", mesh).train(1)
    training = InParallel("reductions", mesh, budget="1GiB", capture="graph")
    plan, is_second = training.model.plan, dist.get_rank() == 1
    found = {"a batch of another size at the first call": told(lambda: training.loss(batch=BATCH + is_second)),
             "an error of the model": told(lambda: training.loss(batch=13))}
    found["after"] = {"same": training.train(1) == expected}
    found["a batch of another size"] = told(lambda: training.loss(batch=BATCH + is_second))
    plan.set_budget(1000 if is_second else "1GiB")
    found["a budget that is too small"] = told(training.loss)
    plan.set_budget("1GiB")
    found["after all"] = {"same": training.train(1) == expected}

    plan.set_budget(training.least_budget() * 21 // 20)
    training.train(1)
    loss = training.loss()
    held = Ballast(1 << 20)
    found["memory that was taken between forward and backward"] = told(loss.backward)
    del held, loss
    training.optimizer.zero_grad()
    plan.set_budget("1GiB")
    loss = training.loss()
    if is_second:
        local_of(training.model.head.weight).detach().mul_(2)
    found["a tensor that was changed between forward and backward"] = told(loss.backward)
    del loss
    losses = [training.loss(0), training.loss(1)]
    found["backward in another order"] = told(losses[is_second].backward)
    del losses
    training.optimizer.zero_grad()
    found["a model that is divided after it was compiled"] = told(divided_late(mesh).loss)
    found["at the end"] = {"same": training.train(1) == expected}
    return found


def divided_late(mesh: DeviceMesh) -> InParallel:
    training = InParallel("whole", mesh, budget="1GiB")
    with_reductions(training.model, mesh)
    return training


def given_plans(mesh: DeviceMesh) -> dict[str, Any]:
    """Plans that the user gives, the same to both processes or to one of them."""
    expected = eager("reductions", mesh).train(1)
    training = planned("reductions", mesh)
    plan = training.model.plan
    plan.set_budget(None)
    training.train(1)
    plan.set_budget(training.least_budget() * 21 // 20)
    training.train(1)
    tight = plan.actions
    plan.set_budget(None)
    plan.use(tight, "given")
    found: dict[str, Any] = {"same": training.train(1) == expected, "is it": plan.actions.actions == tight.actions,
                             "ahead": told(plan.plan_ahead)}
    plan.set_budget("1GiB")
    if dist.get_rank() == 1:
        plan.session.runtime.drop_plans()
    found["one of them"] = told(training.loss)
    return found


CASES: dict[str, Callable[[DeviceMesh], Any]] = {
    **{kind: lambda mesh, kind=kind: budgets(kind, mesh) for kind in KINDS},  # type: ignore[misc]
    "ballast": ballast,
    "errors": errors,
    "given plans": given_plans,
}


def run(rank: int, folder: str) -> None:
    """All cases in one process group."""
    def results() -> dict[str, Any]:
        mesh = init_device_mesh("cpu", (RANKS,))
        return {name: case(mesh) for name, case in CASES.items()}

    leave_results(rank, folder, results)
