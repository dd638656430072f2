"""Steps that store values and state of the optimizer in the host's memory. Most need a GPU; the fake link of tests/runtime covers
the same code on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from models.zoo import CASES
from steps import different, model_of, run_step
from torch import Tensor, nn

import reprise
from reprise.native import _torch

pytestmark = pytest.mark.usefixtures("deterministic")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = torch.device("cuda", 0)
HOST = "4GiB"


@pytest.fixture(autouse=True)
def prompt_copies() -> Iterator[None]:
    yield
    _torch.delay_copies(lambda: None)
    _torch.repeat_copies(1)


class Net(nn.Module):
    """Wide enough that its values are worth a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                                  nn.Dropout(0.1)) for _ in range(8))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().to(GPU)


def images(seed: int) -> Tensor:
    return torch.randn(32, 3, 64, 64, generator=torch.Generator().manual_seed(seed)).to(GPU)


def trained(model: nn.Module, steps: int = 5, accumulate: int = 1) -> dict[str, Any]:
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        for part in range(accumulate):
            loss = nn.functional.cross_entropy(model(images(10 * step + part)), torch.arange(32, device=GPU) % 10)
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return {"losses": losses, "generator": torch.cuda.get_rng_state(GPU)} | dict(model.state_dict())


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name, value in a.items()
            if not (torch.equal(value, b[name]) if isinstance(value, Tensor) else value == b[name])]


def budget_at(share: float) -> int:
    """Between what a compiled model needs at least and its plain peak."""
    model = reprise.compile(net(), cuda_graphs=False)
    trained(model, 1)
    plan = model.plan
    least, full = plan.smallest_budget_bytes(5), plan.peak_bytes
    reprise.restore(model)
    return least + int(share * (full - least))


def stored(budget: int, **options: Any) -> nn.Module:
    return reprise.compile(net(), budget, host_budget=HOST, cuda_graphs=False, planning_seconds=5, **options)


def test_on_the_cpu_it_is_refused_with_the_reason() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    model = reprise.compile(nn.Linear(4, 4), budget="1GiB", host_budget="1GiB")
    with pytest.raises(ValueError, match="host_budget needs an accelerator: the model is on cpu"):
        model(torch.ones(2, 4))


def test_a_host_budget_is_a_size() -> None:
    with pytest.raises(ValueError, match="host_budget"):
        reprise.compile(nn.Linear(4, 4), host_budget="much")


@needs_gpu
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_training_has_the_bits_of_eager_inside_the_budget(share: float) -> None:
    expected = trained(net())
    budget = budget_at(share)
    model = stored(budget)
    assert differing(expected, trained(model)) == []
    plan = model.plan
    assert plan.host_peak_bytes > 0
    assert plan.peak_bytes - 4096 <= plan.measured_peak_bytes <= plan.peak_bytes <= budget
    assert "host's memory" in str(reprise.explain(model))


def delay() -> None:
    _torch.delay_copies(lambda: torch.cuda._sleep(3_000_000))


def quarter() -> None:
    _torch.repeat_copies(4)


@needs_gpu
@pytest.mark.parametrize("slow_down", [delay, quarter])
def test_a_slow_link_changes_neither_bits_nor_peak(slow_down: Callable[[], None]) -> None:
    expected = trained(net())
    model = stored(budget_at(0.3))
    slow_down()
    assert differing(expected, trained(model)) == []
    assert model.plan.host_peak_bytes > 0
    assert model.plan.measured_peak_bytes <= model.plan.budget_bytes


@needs_gpu
def test_gradients_add_up() -> None:
    expected = trained(net(), accumulate=3)
    assert differing(expected, trained(stored(budget_at(0.5)), accumulate=3)) == []


@needs_gpu
def test_a_second_forward_before_the_first_backward_goes_without() -> None:
    def both(model: nn.Module) -> list[Tensor]:
        torch.manual_seed(1)
        for _ in range(3):
            model.zero_grad()
            first, second = (nn.functional.cross_entropy(model(images(i)), torch.arange(32, device=GPU) % 10) for i in (1, 2))
            second.backward()
            first.backward()
        return [p.grad for p in model.parameters()]

    expected = both(net())
    model = reprise.compile(net(), 2 * budget_at(0.9), host_budget=HOST, cuda_graphs=False, planning_seconds=5)
    assert all(torch.equal(a, b) for a, b in zip(expected, both(model), strict=True))


@needs_gpu
def test_an_interrupted_step_leaves_nothing_behind() -> None:
    model = stored(budget_at(0.3))
    trained(model, 2)
    before = torch.cuda.memory_allocated(GPU)
    loss = nn.functional.cross_entropy(model(images(1)), torch.arange(32, device=GPU) % 10)
    del loss  # no backward
    assert torch.cuda.memory_allocated(GPU) == before
    expected = net()
    expected.load_state_dict(model.state_dict())
    assert differing(trained(expected, 2), trained(model, 2)) == []


class Wide(nn.Module):
    """More parameters than values, so that it is the optimizer's state that a budget has no room for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(6)), nn.Linear(2048, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def wide(device: torch.device) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Wide().to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def loss_of(model: nn.Module, seed: int) -> Tensor:
    device = next(model.parameters()).device
    x = torch.randn(4096, 2048, generator=torch.Generator().manual_seed(seed)).to(device)
    return nn.functional.cross_entropy(model(x), torch.arange(4096, device=device) % 10)


def numbers_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    kept = {f"{i} {key}": value.clone() for i, state in enumerate(optimizer.state.values()) for key, value in state.items()}
    return dict(model.state_dict()) | kept


def steps_of(model: nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
    for seed in seeds:
        optimizer.zero_grad()
        loss_of(model, seed).backward()
        optimizer.step()


@pytest.fixture
def parking() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model that has taken two steps inside of a budget that needs some of the optimizer's state to be away."""
    model, optimizer = wide(GPU)
    reprise.compile(model, cuda_graphs=False, optimizer=optimizer)
    steps_of(model, optimizer, range(1))
    least = model.plan.smallest_budget_bytes(5)
    reprise.restore(model)
    model, optimizer = wide(GPU)
    reprise.compile(model, host_budget=HOST, optimizer=optimizer, park_optimizer=True, cuda_graphs=False, planning_seconds=5)
    steps_of(model, optimizer, range(1))
    model.plan.set_budget(least - (32 << 20))
    steps_of(model, optimizer, range(1, 2))
    return model, optimizer


@needs_gpu
def test_parked_state_has_the_bits_of_eager_inside_the_budget(parking: Any) -> None:
    model, optimizer = parking
    steps_of(model, optimizer, range(2, 6))
    plan = model.plan
    assert plan.parked_bytes > 0
    assert plan.measured_peak_bytes <= plan.budget_bytes
    assert "of the optimizer's state" in str(reprise.explain(model))
    plain, plain_optimizer = wide(GPU)
    steps_of(plain, plain_optimizer, range(6))
    assert differing(numbers_of(plain, plain_optimizer), numbers_of(model, optimizer)) == []


@needs_gpu
def test_parked_state_on_a_slow_link_has_the_same_bits(parking: Any) -> None:
    model, optimizer = parking
    delay()
    steps_of(model, optimizer, range(2, 6))
    assert model.plan.measured_peak_bytes <= model.plan.budget_bytes
    plain, plain_optimizer = wide(GPU)
    steps_of(plain, plain_optimizer, range(6))
    assert differing(numbers_of(plain, plain_optimizer), numbers_of(model, optimizer)) == []


@needs_gpu
def test_whoever_reads_parked_state_gets_it_or_is_told(parking: Any) -> None:
    model, optimizer = parking
    before = numbers_of(model, optimizer)
    loss = loss_of(model, 9)
    away = 0
    for state in optimizer.state.values():
        for value in state.values():
            try:
                value.sum()
            except RuntimeError as error:
                assert "is in the host's memory" in str(error)
                away += value.nbytes
    assert 0 < away <= model.plan.parked_bytes
    kept = optimizer.state_dict()["state"]
    found = {f"{i} {key}": value for i, state in kept.items() for key, value in state.items()}
    assert differing({name: before[name] for name in found}, found) == []
    with contextlib.suppress(reprise.BudgetExceeded):  # where memory is highest in backward
        loss.backward()
    assert differing({name: before[name] for name in found}, found) == []
    del loss
    steps_of(model, optimizer, range(9, 11))
    assert model.plan.measured_peak_bytes <= model.plan.budget_bytes


@needs_gpu
def test_parked_state_comes_back_if_the_loss_is_dropped(parking: Any) -> None:
    model, optimizer = parking
    before, allocated = numbers_of(model, optimizer), torch.cuda.memory_allocated(GPU)
    loss = loss_of(model, 9)
    del loss
    assert torch.cuda.memory_allocated(GPU) <= allocated
    assert differing(before, numbers_of(model, optimizer)) == []


@needs_gpu
def test_a_plan_that_parks_state_can_be_used_again(parking: Any) -> None:
    model, optimizer = parking
    plan = model.plan.at_work
    model.plan.set_budget(None)
    steps_of(model, optimizer, range(2, 3))
    assert model.plan.parked_bytes == 0
    model.plan.use_again(plan)
    steps_of(model, optimizer, range(3, 6))
    assert model.plan.parked_bytes == plan.parked_bytes > 0
    plain, plain_optimizer = wide(GPU)
    steps_of(plain, plain_optimizer, range(6))
    assert differing(numbers_of(plain, plain_optimizer), numbers_of(model, optimizer)) == []


def test_parking_needs_an_optimizer_and_memory_of_the_host() -> None:
    model = nn.Linear(4, 4)
    options: list[dict[str, Any]] = [{"host_budget": HOST}, {"optimizer": torch.optim.Adam(model.parameters())}]
    for lacking in options:
        with pytest.raises(ValueError, match="needs optimizer= and host_budget="):
            reprise.compile(model, "1GiB", park_optimizer=True, **lacking)


def test_hooks_of_the_optimizer_go_with_the_model() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    hooks = (optimizer._optimizer_state_dict_pre_hooks, optimizer._optimizer_load_state_dict_pre_hooks,
             optimizer._optimizer_step_pre_hooks)
    reprise.compile(model, optimizer=optimizer)
    assert all(hooks)
    reprise.restore(model)
    assert not any(hooks)


@needs_gpu
@pytest.mark.parametrize("name", ["hf_resnet", "hf_gpt2", "hf_bert", "inplace_views"])
def test_networks_of_the_zoo(name: str) -> None:
    case = CASES[name]
    plain = model_of(case, device=GPU)
    expected = run_step(plain, case)
    model = reprise.compile(model_of(case, device=GPU), cuda_graphs=False, planning_seconds=3)
    run_step(model, case)
    budget = (model.plan.peak_bytes + model.plan.smallest_budget_bytes(3)) // 2
    reprise.restore(model)
    model = reprise.compile(model_of(case, device=GPU), budget, host_budget=HOST, cuda_graphs=False, planning_seconds=3)
    assert different(expected, run_step(model, case)) == []
