"""Steps in an arena: bits of eager in every situation, with all freed memory filled with NaN; the budget with the whole
block in it; and operators that do not do what they did when they were watched."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from training import DEVICE, Mlp, batch

import reprise
from reprise.native import _torch

pytestmark = pytest.mark.skipif(DEVICE.type != "cpu", reason="there are arenas on the CPU alone")


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    _torch.poison_arenas(True)
    yield
    _torch.poison_arenas(False)


def plain_step(model: nn.Module, i: int) -> None:
    model.zero_grad()
    model(batch(seed=i)).square().mean().backward()


def accumulating(model: nn.Module, i: int) -> None:
    if i % 3 == 0:
        model.zero_grad()
    model(batch(seed=i)).square().mean().backward()


def never_none(model: nn.Module, i: int) -> None:
    model.zero_grad(set_to_none=False)
    model(batch(seed=i)).square().mean().backward()


def two_forwards(model: nn.Module, i: int) -> None:
    model.zero_grad()
    first, second = model(batch(seed=i)).square().mean(), model(batch(seed=i + 50)).square().mean()
    if i % 2:
        second.backward()
        first.backward()
    else:
        (first + second).backward()


def dropped_loss(model: nn.Module, i: int) -> None:
    model.zero_grad()
    kept = model(batch(seed=i + 50)).square().mean()
    if i % 2:
        del kept
    model(batch(seed=i)).square().mean().backward()


def two_shapes(model: nn.Module, i: int) -> None:
    model.zero_grad()
    model(batch(rows=32 + 8 * (i % 2), seed=i)).square().mean().backward()


def evaluation_between(model: nn.Module, i: int) -> None:
    plain_step(model, i)
    with torch.no_grad():
        model(batch(seed=i + 50))


SITUATIONS = [plain_step, accumulating, never_none, two_forwards, dropped_loss, two_shapes, evaluation_between]


def trained(model: nn.Module, situation: Callable[[nn.Module, int], None], steps: int = 8) -> list[Tensor]:
    """The gradients of all steps, the same ones held from step to step, and the parameters at the end."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seen, held = [], []
    for i in range(steps):
        situation(model, i)
        seen += [parameter.grad.clone() for parameter in model.parameters()]
        held.append(list(model.parameters())[i % 3].grad)
        optimizer.step()
    return [*seen, *(gradient.clone() for gradient in held), *model.parameters()]


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("share", [None, 0.9, 0.75])
def test_every_situation_gives_the_bits_of_eager(one_thread: None, situation: Callable[[nn.Module, int], None],
                                                 share: float | None) -> None:
    torch.manual_seed(0)
    model = Mlp(layers=8).to(DEVICE)
    eager, planned = copy.deepcopy(model), copy.deepcopy(model)
    budget = None
    if share is not None:
        probe = reprise.compile(copy.deepcopy(model), arena=False, planning_seconds=1)
        trained(probe, situation)
        budget = int(probe.plan.measured_peak_bytes * share) + 40_000
    reprise.compile(planned, budget, arena=True, planning_seconds=1)
    assert same_bits(trained(planned, situation), trained(eager, situation))
    use = planned.plan.arena
    assert use.steps > 0
    assert use.kept == 0
    if budget is not None:
        assert planned.plan.measured_peak_bytes <= budget


def test_what_is_predicted_is_measured_with_the_whole_block(one_thread: None) -> None:
    torch.manual_seed(0)
    model = reprise.compile(Mlp().to(DEVICE), arena=True)
    for i in range(4):
        plain_step(model, i)
        # At the first step, what the caller takes is guessed.
        assert i == 0 or model.plan.peak_bytes == model.plan.measured_peak_bytes
    use = model.plan.arena
    assert (use.steps, use.steps_without, use.why_without) == (3, 1, "the first step is watched")
    assert use.unplanned == 0
    assert use.served > 0
    assert use.load_bytes <= use.arena_bytes <= use.block_bytes
    text = str(reprise.explain(model))
    assert "0 of " in text
    assert "requests not of the plan" in text


def test_a_restored_model_gives_its_block_back(one_thread: None) -> None:
    model = Mlp().to(DEVICE)
    before = _torch.allocated_bytes(DEVICE)
    reprise.compile(model, arena=True)
    for i in range(3):
        plain_step(model, i)
    block = model.plan.arena.block_bytes
    assert block > 0
    assert _torch.allocated_bytes(DEVICE) - before >= block
    model.zero_grad()
    reprise.restore(model)
    assert _torch.allocated_bytes(DEVICE) - before < block


def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="arena='no'"):
        reprise.compile(Mlp(), arena="no")


def test_an_arena_can_be_turned_off_between_steps(one_thread: None) -> None:
    model = reprise.compile(Mlp().to(DEVICE), arena=True)
    for i in range(3):
        plain_step(model, i)
    assert model.plan.at_work.arena_bytes > 0
    model.plan.set_arena(False)
    plain_step(model, 3)
    assert model.plan.at_work.arena_bytes == 0
    assert model.plan.arena.block_bytes == 0
    assert "arena                   off" in str(reprise.explain(model))


# -- An operator that lies.

LIES: dict[str, str] = {"now": "no"}
KEPT: list[Tensor] = []
SUMS: list[float] = []


@torch.library.custom_op("arena_test::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """Doubles, and takes memory as the latest lie says."""
    if LIES["now"] == "more":
        _ = [torch.full_like(x, 3.0) for _ in range(3)]
    if LIES["now"] == "keeps":
        KEPT.append(x * 2)  # asks for what the honest call asks for, so it gets the memory of the result
        SUMS.append(KEPT[-1].sum().item())
    if LIES["now"] == "other thread":
        made: list[Tensor] = []
        thread = threading.Thread(target=lambda: made.append(torch.empty_like(x)))
        thread.start()
        thread.join()
        return torch.mul(x, 2, out=made[0])
    if LIES["now"] == "other sizes":
        return torch.stack([x, x]).sum(0)
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda ctx, gradient: twice(gradient), setup_context=lambda ctx, inputs, output: None)


class Liar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.second(twice(torch.tanh(self.first(x)))))
        return x


@pytest.mark.parametrize("lie", ["more", "keeps", "other thread", "other sizes"])
def test_an_operator_that_lies_gives_right_results(one_thread: None, lie: str) -> None:
    torch.manual_seed(0)
    LIES["now"] = "no"
    KEPT.clear()
    SUMS.clear()
    eager = Liar().to(DEVICE)
    planned = reprise.compile(copy.deepcopy(eager), arena=True)
    for i in range(9):
        LIES["now"] = lie if i >= 3 else "no"
        plain_step(planned, i)
        mine = [parameter.grad.clone() for parameter in planned.parameters()]
        LIES["now"] = "no"
        plain_step(eager, i)
        assert same_bits(mine, [parameter.grad for parameter in eager.parameters()]), (lie, i)
    assert [tensor.sum().item() for tensor in KEPT] == SUMS
    use = planned.plan.arena
    assert use.kept > 0 if lie == "keeps" else use.unplanned > 0 or lie == "other thread"
