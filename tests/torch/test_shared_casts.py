"""Parameters with several readers within autocast: their gradients are added as in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training import DEVICE, assert_same

import reprise

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH = 32


class Shared(nn.Module):
    """One layer, read as `how` says."""

    def __init__(self, how: Callable[[nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self.layer, x)


def in_bfloat16(enabled: bool = True, remembers: bool = True) -> torch.autocast:
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=enabled, cache_enabled=remembers)


def thrice(layer: nn.Linear, x: Tensor) -> Tensor:
    return layer(torch.relu(layer(torch.relu(layer(x)))))


def also_whole(layer: nn.Linear, x: Tensor) -> Tensor:
    """Readers in fp32 before, between and after those of the cast."""
    y = thrice(layer, x * layer.weight.sum()) * layer.weight.square().sum()
    return layer(y) + layer.bias.exp() + layer.weight.mean()


def without_gradients(layer: nn.Linear, x: Tensor) -> Tensor:
    return layer(torch.relu(layer(x)) + layer(x).detach())


def by_itself(layer: nn.Linear, x: Tensor) -> Tensor:
    return nn.functional.linear(nn.functional.linear(x, layer.weight.to(torch.bfloat16)), layer.weight)


def one_region(layer: nn.Linear, x: Tensor) -> Tensor:
    with in_bfloat16():
        y = layer(torch.relu(layer(x)))
    return y.float() * layer.bias


def two_regions(layer: nn.Linear, x: Tensor) -> Tensor:
    with in_bfloat16():
        y = layer(torch.relu(layer(x)))
    with in_bfloat16():
        return layer(y)


def region_that_forgets(layer: nn.Linear, x: Tensor) -> Tensor:
    with in_bfloat16(remembers=False):
        return layer(torch.relu(layer(x)))


def with_a_region_in_fp32(layer: nn.Linear, x: Tensor) -> Tensor:
    y = layer(torch.relu(layer(x)))
    with in_bfloat16(enabled=False):
        y = layer(y.float())
    return layer(y)


READERS = [thrice, also_whole, without_gradients, by_itself, one_region, two_regions, region_that_forgets, with_a_region_in_fp32]


WITHOUT_AUTOCAST = [one_region, two_regions, region_that_forgets]


@pytest.mark.parametrize(("how", "around"), [
    *((how, in_bfloat16) for how in READERS), *((how, lambda: in_bfloat16(False)) for how in WITHOUT_AUTOCAST),
    *((how, nullcontext) for how in WITHOUT_AUTOCAST)])
def test_gradients_are_those_of_eager(how: Callable[[nn.Linear, Tensor], Tensor],
                                      around: Callable[[], AbstractContextManager[Any]]) -> None:
    def loop(model: nn.Module) -> None:
        for seed in range(2):
            torch.manual_seed(seed)
            x = torch.randn(8, WIDTH).to(DEVICE)
            with around():
                y = model(x)
            y.float().square().mean().backward()

    torch.manual_seed(0)
    assert_same(Shared(how), loop, budget=None)


def test_what_is_not_remembered_is_not_shared() -> None:
    def loop(model: nn.Module) -> None:
        with in_bfloat16(remembers=False):
            y = model(torch.ones(8, WIDTH).to(DEVICE))
        y.float().square().mean().backward()

    assert_same(Shared(thrice), loop, budget=None)


def test_leaves_that_are_views_are_not_remembered() -> None:
    """Autocast does not remember the cast of a view, so each reader has one of its own."""
    torch.manual_seed(0)
    base, x = torch.randn(2 * WIDTH, WIDTH).to(DEVICE), torch.randn(8, WIDTH).to(DEVICE)

    def gradient_of(run: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        weight = base[:WIDTH].requires_grad_()
        with in_bfloat16():
            y = run(x, weight)
        y.float().square().mean().backward()
        assert weight.grad is not None
        return weight.grad

    class Thrice(nn.Module):
        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return torch.relu(torch.relu(x @ weight) @ weight) @ weight

    eager = gradient_of(Thrice())
    assert torch.equal(gradient_of(reprise.compile(Thrice(), capture="graph")), eager)


def test_inputs_that_are_no_leaves_are_not_remembered() -> None:
    def loop(model: nn.Module) -> None:
        with in_bfloat16():
            x = torch.ones(WIDTH, WIDTH, requires_grad=True).to(DEVICE)
            y = model(x * 0.5)
        y.float().square().mean().backward()

    assert_same(Shared(lambda layer, x: (x @ layer.weight) @ x), loop, budget=None)
