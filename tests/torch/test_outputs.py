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


def test_parameters_of_an_output_left_out_of_the_loss_get_zeros() -> None:
    """Exception: eager gives them no gradient. AOTAutograd passes zeros to backward for an output
    without a gradient, and cannot tell them from zeros that come from the loss."""
    plain, planned = Several().to(DEVICE), Several().to(DEVICE)
    planned.load_state_dict(plain.state_dict())
    for model in (plain, reprise.compile(planned)):
        model(batch())[0].square().sum().backward()
    assert torch.equal(plain.layers[0].weight.grad, planned.layers[0].weight.grad)
    assert plain.layers[1].weight.grad is None
    assert not planned.layers[1].weight.grad.any()


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
