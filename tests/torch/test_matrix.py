"""Tests how the exactness matrix judges networks, including one that does not repeat its own bits."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from models.zoo import CASES, Case, cross_entropy, features
from torch import Tensor, library, nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import matrix

CPU = torch.device("cpu")
calls = itertools.count()


@library.custom_op("reprise_tests::as_it_comes", mutates_args=())
def as_it_comes(x: Tensor) -> Tensor:
    """Stands for a kernel that adds numbers in any order: two calls in a row never give the same, whatever the seed is."""
    return x * (1 + 1e-6 * (next(calls) % 7))


@library.custom_op("reprise_tests::unchanged", mutates_args=())
def unchanged(x: Tensor) -> Tensor:
    return x.clone()


@as_it_comes.register_fake
@unchanged.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


unchanged.register_autograd(lambda ctx, grad: as_it_comes(grad))


def layers() -> nn.Sequential:
    return nn.Sequential(*(part for _ in range(3) for part in (nn.Linear(16, 16), nn.Tanh(), nn.Sigmoid())))


class Noisy(nn.Module):
    """A network whose forward repeats its bits and whose backward does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers(), layers()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(unchanged(self.first(x)))


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    case = Case("noisy", 32, Noisy, features(16), cross_entropy)
    monkeypatch.setitem(CASES, case.name, case)
    yield case


def test_a_network_that_does_not_repeat_itself_is_judged_by_how_close_it_is(noisy: Case) -> None:
    rows = matrix.Bench(noisy.name, None, CPU).rows(0.2)
    assert any(row.recompute_percent > 0 for row in rows)
    for row in rows:
        assert (row.repeats, row.as_none, row.as_eager, row.close, row.kept) == (False, None, None, True, True), row
    count = len(rows)
    assert f"| {count} | {count} close | eager does not repeat its own bits |" in matrix.table(rows)


def test_but_not_by_anything_goes(noisy: Case) -> None:
    bench = matrix.Bench(noisy.name, None, CPU)
    right = bench.none

    def changed(name: str, factor: float) -> matrix.Step:
        dtype, shape, content = right.bits[name]
        numbers = torch.frombuffer(bytearray(content), dtype=torch.float32) * factor
        return dataclasses.replace(right, bits=right.bits | {name: (dtype, shape, numbers.numpy().tobytes())})

    gradient = next(n for n in right.bits if n.startswith("grad first") and n.endswith("weight"))
    state = gradient.replace("grad", "state")
    assert bench.judged(changed(gradient, 1 + 1e-7))["close"]
    assert not bench.judged(changed(gradient, 1.001))["close"]
    assert not bench.judged(changed(gradient, float("nan")))["close"]
    assert not bench.judged(dataclasses.replace(right, bits=right.bits | {gradient: None}))["close"]
    # What eager repeats must be the same to the bit.
    assert not bench.judged(changed("loss", 1 + 2e-7))["close"]
    assert not bench.judged(changed(state, 1 + 2e-7))["close"]
    generator = right.bits["generator"]
    other = (*generator[:2], bytes(len(generator[2])))
    assert not bench.judged(dataclasses.replace(right, bits=right.bits | {"generator": other}))["close"]


def test_others_are_judged_by_their_bits() -> None:
    bench = matrix.Bench("dropout_mlp", None, CPU)
    assert bench.judged(bench.none) == {"as_none": True, "as_eager": True}
    loss = bench.none.bits["loss"]
    wrong = dataclasses.replace(bench.none, bits=bench.none.bits | {"loss": (*loss[:2], bytes(len(loss[2])))})
    assert bench.judged(wrong) == {"as_none": False, "as_eager": False}
