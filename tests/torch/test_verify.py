"""Tests that reprise.verify finds what is wrong, and leaves the model as it was."""

from __future__ import annotations

import itertools
from typing import Any

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
