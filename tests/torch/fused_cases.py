"""Small models for tests of the engine "fused", and how one of their steps is run."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from training import DEVICE, batch

import reprise

# On CUDA, attention may take a few blocks of memory less than when it is measured alone.
SLACK = 0 if DEVICE.type == "cpu" else 4096


class WithLoss(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).square().mean()


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(),
                                    nn.Linear(64, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Residual(nn.Module):
    """Convolutions with batch norm, whose statistics are written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.relu(self.norms[0](self.first(x)), inplace=True)
        return functional.silu(self.norms[1](self.second(hidden)) + x)


class Attention(nn.Module):
    """Attention, in which the gradients of the three parts of `packed` are written into one tensor, part by part."""

    def __init__(self) -> None:
        super().__init__()
        self.packed, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.packed(x).split(16, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Dropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 64), nn.Dropout(0.3),
                                    nn.Tanh(), nn.Linear(64, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Pooled(nn.Module):
    """What max pooling saves is where in its window each largest number was; windows at the border are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)])
        self.pools = nn.ModuleList([nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2)])

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions[:2]:
            x = functional.gelu(convolution(x))
        return functional.silu(self.pools[1](self.convolutions[2](self.pools[0](x))))


def images() -> Tensor:
    return torch.randn(8, 4, 12, 12, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def two_blocks() -> nn.Module:
    return nn.Sequential(Attention(), nn.GELU(), Attention(), nn.GELU(), nn.Linear(16, 4))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "perceptron": (Perceptron, lambda: batch(256)), "residual": (Residual, images), "pooled": (Pooled, images),
    "attention": (two_blocks, lambda: batch(8 * 32).view(8, 32, 16)), "dropouts": (Dropouts, lambda: batch(256))}


@dataclass
class Trained:
    """A model that returns its loss, and its input."""

    model: nn.Module
    x: Tensor

    def step(self) -> dict[str, Tensor]:
        """Runs one step from the same random state. Returns its gradients and buffers."""
        gc.collect()  # What earlier tests have left counts until it is freed.
        torch.manual_seed(7)
        self.model.zero_grad()
        self.model(self.x).backward()
        gradients = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
        self.model.zero_grad()
        return gradients | {name: b.clone() for name, b in self.model.named_buffers()}


def budgets(trained: Trained) -> list[int]:
    """Budgets between the peak without recomputation and the smallest one that works."""
    plan: Any = trained.model.plan
    plan.set_budget(None)
    trained.step()
    highest = plan.peak_bytes
    with pytest.raises(reprise.InfeasibleBudget) as refused:
        plan.set_budget(1)
        trained.step()
    smallest = refused.value.smallest_budget_bytes
    return [smallest + (highest - smallest) * tenth // 10 for tenth in (9, 6, 3, 0)]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def perceptron() -> Trained:
    torch.manual_seed(0)
    return Trained(reprise.compile(WithLoss(Perceptron()).to(DEVICE), engine="fused"), batch(256))


def check_bits_and_peaks(trained: Trained) -> None:
    plan: Any = trained.model.plan
    begin = copy.deepcopy(trained.model.state_dict())

    def again() -> dict[str, Tensor]:
        trained.model.load_state_dict(begin)
        return trained.step()

    plan.set_budget(None)
    expected = again()
    recomputed = 0
    for budget in budgets(trained):
        plan.set_budget(budget)
        again()  # After this step, it is known what the caller allocates.
        assert same(again(), expected)
        assert plan.peak_bytes - SLACK <= plan.measured_peak_bytes <= plan.peak_bytes <= budget
        recomputed += plan.recompute_ns > 0
    assert recomputed > 0
    plan.set_budget(None)
