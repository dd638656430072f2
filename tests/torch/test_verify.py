"""Tests that reprise.verify finds what is wrong, and leaves the model as it was."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, library, nn
from training import Mlp, batch, smallest_budget, state_of

import reprise

pytestmark = pytest.mark.usefixtures("one_thread")

count = itertools.count()


@library.custom_op("reprise_tests::drifting", mutates_args=())
def drifting(x: Tensor) -> Tensor:
    """An operator that gives other numbers at every call, so that nothing can be the same."""
    return x * (1 + next(count))


@drifting.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


drifting.register_autograd(lambda ctx, grad: grad * 1.0)


class Drifting(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        return drifting(super().forward(x))


@library.custom_op("reprise_tests::drifting_back", mutates_args=())
def drifting_back(x: Tensor) -> Tensor:
    return x.clone()


drifting_back.register_fake(torch.empty_like)
drifting_back.register_autograd(lambda ctx, grad: drifting(grad))


class DriftingBack(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return nn.functional.linear(x, self.head.weight, drifting_back(self.head.bias))


class Everything(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.dropout(self.norm(x)))


def step(model: nn.Module) -> None:
    output = model(batch())
    output.sum().backward()


def test_a_healthy_model_passes_and_is_left_as_it_was() -> None:
    model = Everything()
    step(model)
    torch.manual_seed(5)
    before, generator = state_of(model), torch.get_rng_state()
    budget = smallest_budget(model, step)
    torch.manual_seed(5)
    found = reprise.verify(model, batch(), budget)
    assert found.ok, str(found)
    assert found.same
    assert found.inside
    assert found.planned_peak_bytes <= budget
    assert found.predicted_peak_bytes == found.planned_peak_bytes
    assert state_of(model) == before
    assert torch.equal(torch.get_rng_state(), generator)
    assert model._compiled_call_impl is None
    assert not hasattr(model, "plan")
    assert "the same" in str(found)


def test_a_model_whose_operator_drifts_is_reported() -> None:
    found = reprise.verify(Drifting(), batch())
    assert not found.ok
    assert "loss" in found.different
    assert "differ: " in str(found)


def test_wrong_gradients_are_reported() -> None:
    found = reprise.verify(DriftingBack(), batch())
    assert not found.ok
    assert found.different == ["gradient of head.bias"]


def test_a_step_above_its_budget_is_reported() -> None:
    model = Mlp()
    model.head.weight.register_hook(lambda gradient: torch.zeros(1 << 20).sum() * 0 + gradient)
    found = reprise.verify(model, batch(), "1MB")
    assert not found.inside
    assert not found.ok
    assert "EXCEEDED" in str(found)


def test_a_budget_too_small_is_refused_and_the_model_left_as_it_was() -> None:
    model = Everything()
    before = state_of(model)
    with pytest.raises(reprise.InfeasibleBudget):
        reprise.verify(model, batch(), 1)
    assert state_of(model) == before
    assert model._compiled_call_impl is None


@pytest.mark.parametrize("inputs", [batch(), (batch(),), {"x": batch()}, ((batch(),), {}), ((), {"x": batch()})],
                         ids=["tensor", "tuple", "dict", "args", "kwargs"])
def test_inputs_of_every_form(inputs: Any) -> None:
    assert reprise.verify(Mlp(layers=1), inputs, repeats=1).ok


def test_a_loss_of_one_s_own() -> None:
    assert reprise.verify(Mlp(layers=1), batch(), loss=lambda y: y.square().mean(), repeats=2).ok


class DropsLayers(Mlp):
    """Python's and NumPy's generators decide which layers run."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if random.random() < 0.7 and np.random.rand() < 0.8:
                x = torch.tanh(layer(x))
        return self.head(x)


def test_plain_and_planned_steps_begin_with_the_same_numbers_of_python_and_numpy() -> None:
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]
    answer = reprise.verify(DropsLayers(), batch(), budget="1GiB", repeats=5)
    assert answer.ok, answer
    assert not answer.unrepeated
    assert (random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]) == before


def test_plain_steps_that_differ_from_each_other_are_named() -> None:
    answer = reprise.verify(Drifting(), batch(), budget="1GiB")
    assert "loss" in answer.unrepeated
    assert "plain steps from the same state differ from each other" in str(answer)
    assert not reprise.verify(Mlp(), batch(), budget="1GiB").unrepeated


def test_the_peak_that_is_predicted_is_that_of_the_plan_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps do not wait for the best plan, but verify does."""
    monkeypatch.setenv("REPRISE_WAITING_SECONDS", "0.0")
    layers = [nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True) for _ in range(4)]
    model, x = nn.Sequential(*layers), torch.randn(16, 24, 32)
    peak = reprise.verify(model, x).plain_peak_bytes
    answer = reprise.verify(model, x, budget=peak * 6 // 10, planning_seconds=1.0, repeats=1)
    assert answer.ok, answer
    assert answer.predicted_peak_bytes == answer.planned_peak_bytes
