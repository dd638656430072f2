"""Tests what a model may return, and which outputs the loss may use: several outputs, aliases, a loss beside others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from training import DEVICE, ROOMY, Mlp, assert_same, batch

import reprise
from reprise.native import _torch

pytestmark = pytest.mark.usefixtures("one_thread")


class Several(Mlp):
    def forward(self, x: Tensor) -> Any:
        first = torch.tanh(self.layers[0](x))
        second = torch.tanh(self.layers[1](first))
        return first, [second, second * 2], self.layers[2](second), x.shape[0]


def test_several_losses_are_added_up() -> None:
    def loop(model: nn.Module) -> Any:
        for i in range(2):
            first, (second, third), fourth, rows = model(batch(seed=i))
            assert rows == 32
            (first.sum() + second.square().sum() + 0.5 * third.sum() + fourth.mean()).backward()

    assert_same(Several(), loop)


def test_an_output_may_be_left_out_of_the_loss() -> None:
    assert_same(Several(), lambda m: [m(batch(seed=i))[2].square().sum().backward() for i in range(2)])


def test_parameters_of_an_output_left_out_of_the_loss_get_no_gradient() -> None:
    plain, planned = Several().to(DEVICE), Several().to(DEVICE)
    planned.load_state_dict(plain.state_dict())
    reprise.compile(planned, ROOMY)

    def compare(used: int) -> None:
        for model in (plain, planned):
            model.zero_grad()
            model(batch())[used].square().sum().backward()
        assert (plain.layers[1].weight.grad is None) == (used == 0)
        for mine, theirs in zip(planned.parameters(), plain.parameters(), strict=True):
            assert (mine.grad is None) == (theirs.grad is None)
            assert mine.grad is None or torch.equal(mine.grad, theirs.grad)

    for used in (0, 2, 0, 0, 0, 0):
        compare(used)
    with pytest.raises(reprise.RepriseError, match="Run the step again"):
        compare(2)
    for used in (2, 0, 0, 0, 2):
        compare(used)


class Pair(nn.Module):
    """As CLIP: a gradient that arrives transposed, of a product that is also returned."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(48, 40), nn.Linear(48, 40)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        left, right = self.left(x), self.right(x.flip(0))
        products = left @ right.t()
        labels = torch.arange(x.shape[0], device=x.device)
        loss = nn.functional.cross_entropy(products.t(), labels)
        return {"loss": loss, "products": products, "left": left, "right": right}


def test_gradients_lie_in_memory_as_they_do_without_the_outputs_outside_of_the_loss() -> None:
    x = torch.randn(200, 48, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    answer = reprise.verify(Pair().to(DEVICE), x)
    assert answer.same, answer
    budget = answer.planned_peak_bytes
    with pytest.raises(reprise.InfeasibleBudget) as refusal:
        reprise.verify(Pair().to(DEVICE), x, budget // 2)
    for tight in (budget, refusal.value.smallest_budget_bytes):
        answer = reprise.verify(Pair().to(DEVICE), x, tight)
        assert answer.ok, answer
        assert answer.predicted_peak_bytes == answer.planned_peak_bytes


class Aliases(Mlp):
    """A model whose outputs are inputs, views of them, views of one another, without a gradient, or None."""

    def forward(self, x: Tensor) -> Any:
        y = torch.tanh(self.layers[0](x))
        with torch.no_grad():
            mean = self.layers[1](x).mean()
        return x, x[:4], y, y.view(-1), y, y.detach(), mean, None, self.layers[2](y * mean)


def test_outputs_may_alias_inputs_and_one_another() -> None:
    """Exception: three or more gradients of one tensor, some of them through outputs, may be added up in
    another order than eager's. For two, the order does not matter."""

    def loop(model: nn.Module) -> Any:
        results = []
        for i in range(2):
            outputs = model(batch(seed=i))
            (outputs[3].square().sum() + outputs[-1].square().sum()).backward()
            results.append([None if y is None else y.detach() for y in outputs])
            results.append([y is not None and y.requires_grad for y in outputs])
        return results

    assert_same(Aliases(), loop)


class OwnLoss(Mlp):
    """A model that returns its loss, and what the loss was computed from."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = super().forward(x)
        return {"loss": y.log_softmax(1).square().mean(), "logits": y}


def test_a_model_with_its_own_loss_needs_no_zeros_for_its_other_outputs() -> None:
    model = reprise.compile(OwnLoss(outputs=4000).to(DEVICE))
    for i in range(3):
        outputs = model(batch(seed=i))
        outputs["loss"].backward()
        model.zero_grad()
        del outputs
    assert model.plan.measured_peak_bytes == model.plan.peak_bytes
    graph = model.plan.graph
    seeds = [model.plan.costs.value_bytes[value] for value in graph.outputs(graph.caller_op)]
    assert seeds[:2] == [_torch.granted_bytes(DEVICE, 4), 0]  # the gradients of the loss and of the logits


def test_an_output_beside_the_loss_may_join_it_at_any_step() -> None:
    def loop(model: nn.Module) -> Any:
        losses = []
        for i in range(6):
            outputs = model(batch(seed=i))
            loss = outputs["loss"] + (outputs["logits"].square().mean() if i % 3 == 2 else 0)
            loss.backward()
            losses.append(loss.detach())
        return losses

    assert_same(OwnLoss(), loop, budget=ROOMY)


def test_a_gradient_that_was_not_planned_for_is_told_before_backward() -> None:
    model = reprise.compile(OwnLoss(outputs=4000).to(DEVICE), ROOMY, cuda_graphs=False)
    for _ in range(3):
        model(batch())["loss"].backward()
        model.zero_grad()
    model.plan.set_budget(model.plan.peak_bytes + 1024)
    outputs = model(batch())
    loss = outputs["loss"] + outputs["logits"].square().mean()
    with pytest.raises(reprise.BudgetExceeded):
        loss.backward()
    assert model.head.weight.grad is None
