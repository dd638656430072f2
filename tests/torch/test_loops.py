"""Everything a training loop may do gives the bits of eager PyTorch."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.nn import functional
from training import DEVICE, ROOMY, Mlp, assert_same, batch

import reprise

pytestmark = pytest.mark.usefixtures("one_thread")


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 3, **zero: Any) -> list[Tensor]:
    losses = []
    for i in range(count):
        optimizer.zero_grad(**zero)
        loss = model(batch(seed=i)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p, lr=0.01),
    lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True)], ids=["sgd", "adam", "adamw"])
def test_parameters_and_optimizer_state_follow_eager_over_steps(make: Any, set_to_none: bool) -> None:
    def loop(model: nn.Module) -> Any:
        optimizer = make(model.parameters())
        losses = steps(model, optimizer, set_to_none=set_to_none)
        return losses, [s for p in model.parameters() for s in optimizer.state[p].values()]

    assert_same(Mlp(), loop)


def test_gradients_accumulate_over_micro_batches() -> None:
    def loop(model: nn.Module) -> None:
        for i in range(4):
            (model(batch(seed=i)).square().mean() / 4).backward()

    assert_same(Mlp(), loop)


def test_gradient_clipping_between_backward_and_step() -> None:
    def loop(model: nn.Module) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        norms = []
        for i in range(3):
            optimizer.zero_grad()
            model(batch(seed=i)).square().sum().backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
            optimizer.step()
        return norms

    assert_same(Mlp(), loop)


def test_a_plain_sequential_and_a_plain_layer_can_be_compiled() -> None:
    for model in (nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)), nn.Linear(16, 4)):
        assert_same(model, lambda m: steps(m, torch.optim.SGD(m.parameters(), lr=0.1)))


class WithLoss(Mlp):
    def forward(self, x: Tensor, target: Tensor | None = None) -> Any:
        logits = super().forward(x)
        return {"logits": logits, "loss": functional.cross_entropy(logits, target)}


def test_the_loss_may_be_inside_the_model() -> None:
    target = torch.arange(32, device=DEVICE) % 4

    def loop(model: nn.Module) -> Any:
        results = []
        for i in range(2):
            output = model(batch(seed=i), target=target)
            output["loss"].backward()
            results.append({name: t.detach() for name, t in output.items()})
        return results

    assert_same(WithLoss(), loop)


LOSSES = {
    "sum": torch.sum,
    "mean": torch.mean,
    "element": lambda y: y[0, 0],
    "mse": lambda y: functional.mse_loss(y, torch.ones_like(y)),
    "cross_entropy": lambda y: functional.cross_entropy(y, torch.arange(len(y), device=y.device) % 4),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_any_loss_outside_of_the_model(loss: Any) -> None:
    """These include losses whose gradient is expanded."""

    def loop(model: nn.Module) -> Any:
        for i in range(2):
            loss(model(batch(seed=i))).backward()

    assert_same(Mlp(), loop)


def test_a_gradient_in_another_layout_than_its_output_is_copied_first() -> None:
    """Exception: AOTAutograd expects the gradient of an output to have the layout of the output, and
    copies it otherwise. The copy is exact, but sums over it may round differently from eager's."""

    def loop(model: nn.Module) -> None:
        output = model(batch())
        output.register_hook(lambda gradient: gradient.contiguous())
        output.t().contiguous().square().sum().backward()

    assert_same(Mlp(), loop)


def test_an_output_of_one_column_takes_an_expanded_gradient() -> None:
    assert_same(Mlp(outputs=1), lambda m: [m(batch(seed=i)).sum().backward() for i in range(2)])


class Convolutions(nn.Module):
    def __init__(self, norm: Any = nn.BatchNorm2d) -> None:
        super().__init__()
        channels = (3, 8, 8, 8)
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(channels))
        self.norms = nn.ModuleList(norm(b) for b in channels[1:])
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = functional.relu(norm(conv(x)))
        return self.head(x.mean((2, 3)))


def images(seed: int = 0, rows: int = 4) -> Tensor:
    return torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def image_steps(model: nn.Module, count: int = 3) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for i in range(count):
        loss = functional.cross_entropy(model(images(i)), torch.arange(4, device=DEVICE))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def test_autocast_to_bfloat16() -> None:
    def loop(model: nn.Module) -> Any:
        losses = []
        for i in range(2):
            with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
                output = model(batch(seed=i))
            assert output.dtype == torch.bfloat16
            loss = output.float().square().mean()
            loss.backward()
            losses.append(loss.detach())
        return losses

    assert_same(Mlp(), loop)


def test_autocast_may_be_switched_on_between_steps() -> None:
    def loop(model: nn.Module) -> Any:
        outputs = []
        for enabled in (False, True, False):
            with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=enabled):
                outputs.append(model(batch()))
            outputs[-1].float().sum().backward()
        return [y.detach() for y in outputs]

    assert_same(Mlp(), loop)


def test_channels_last() -> None:
    def loop(model: nn.Module) -> Any:
        for i in range(2):
            output = model(images(i).to(memory_format=torch.channels_last))
            functional.cross_entropy(output, torch.arange(4, device=DEVICE)).backward()

    assert_same(Convolutions().to(memory_format=torch.channels_last), loop)


def test_batch_norm_statistics_are_updated_once() -> None:
    model = assert_same(Convolutions(), image_steps)
    assert [int(norm.num_batches_tracked) for norm in model.norms] == [3, 3, 3]


@pytest.mark.parametrize("options", [
    {"track_running_stats": False}, {"momentum": 0.3}, {"affine": False}], ids=str)
def test_batch_norm_of_every_kind(options: dict[str, Any]) -> None:
    assert_same(Convolutions(lambda n: nn.BatchNorm2d(n, **options)), image_steps)


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.InstanceNorm2d(3, affine=True),
                                   nn.LayerNorm(8), nn.Conv2d(3, 3, 1), nn.ConvTranspose2d(3, 3, 1)],
                         ids=lambda layer: type(layer).__name__)
def test_a_first_layer_gives_no_gradient_of_the_images(layer: nn.Module) -> None:
    assert_same(nn.Sequential(layer, nn.Flatten(), nn.Linear(192, 4)), image_steps)


def test_batch_norm_in_evaluation_mode_with_gradients() -> None:
    model = Convolutions().to(DEVICE)
    image_steps(model, 1)
    assert_same(model.eval(), image_steps)


def test_a_model_that_goes_on_training_after_an_evaluation() -> None:
    def loop(model: nn.Module) -> Any:
        model.train()
        first = image_steps(model, 1)
        model.eval()
        with torch.no_grad():
            evaluated = model(images(7)), model(images(8, rows=3))
        with torch.inference_mode():
            again = model(images(7)).clone()
        model.train()
        return first, evaluated, again, image_steps(model, 2)

    assert_same(Convolutions(), loop)


# Exception: at p = 1, eager draws no random numbers, but AOTAutograd's operator does. Only the generator differs.
@pytest.mark.parametrize("p", [0.0, 0.1, 0.2, 0.3, 0.5, 0.7])
def test_dropout_of_every_rate(p: float) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(p), nn.Tanh(), nn.Linear(16, 16), nn.Dropout(p, inplace=True),
                          nn.Tanh(), nn.Linear(16, 4))
    assert_same(model, lambda m: steps(m, torch.optim.SGD(m.parameters(), lr=0.1), 2))


@pytest.mark.parametrize("layer", [nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_other_dropout(layer: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), layer(0.3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 4))
    if layer is nn.Dropout1d:
        model = nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 4, 3), layer(0.3), nn.Flatten(), nn.Linear(248, 4))
    assert_same(model, image_steps)


def test_frozen_parameters_get_no_gradient() -> None:
    model = Mlp()
    model.layers[0].requires_grad_(False)
    model.layers[2].weight.requires_grad_(False)
    model = assert_same(model, lambda m: [m(batch(seed=i)).sum().backward() for i in range(2)])
    assert model.layers[0].weight.grad is None
    assert model.layers[2].bias.grad is not None


def test_freezing_between_steps_is_seen() -> None:
    def loop(model: nn.Module) -> None:
        model(batch()).sum().backward()
        model.layers[0].requires_grad_(False)
        model.zero_grad()
        model(batch()).sum().backward()
        model.layers[0].requires_grad_(True)
        model(batch()).sum().backward()

    assert_same(Mlp(), loop)


def test_shared_and_unused_parameters() -> None:
    model = Mlp()
    model.layers[3].weight = model.layers[1].weight
    model.unused = nn.Linear(3, 3)
    model = assert_same(model, lambda m: steps(m, torch.optim.SGD(m.parameters(), lr=0.1)))
    assert model.unused.weight.grad is None
    assert model.layers[3].weight is model.layers[1].weight


class WritesInput(Mlp):
    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        seen.add_(1)
        x.mul_(0.5)
        return super().forward(x + seen)


def test_the_model_may_write_into_its_inputs() -> None:
    def loop(model: nn.Module) -> Any:
        seen, inputs = torch.zeros(16, device=DEVICE), [batch(seed=i) for i in range(2)]
        for x in inputs:
            model(x, seen).sum().backward()
        return seen, inputs

    assert_same(WritesInput(), loop)


class Nested(Mlp):
    def forward(self, inputs: dict[str, Any], *more: Tensor, scale: float = 1.0, bias: Any = None) -> Any:
        x = inputs["x"] + inputs["pair"][0] * inputs["pair"][1]
        for extra in more:
            x = x + extra
        y = super().forward(x) * scale
        return {"y": y if bias is None else y + bias, "x": [x]}


def test_inputs_may_be_nested_and_named() -> None:
    def loop(model: nn.Module) -> Any:
        for i in range(2):
            inputs = {"x": batch(seed=i), "pair": [batch(seed=3), (batch(seed=4))]}
            model(inputs, batch(seed=5), scale=2.0, bias=torch.ones(4, device=DEVICE))["y"].sum().backward()
            model(inputs)["y"].sum().backward()

    assert_same(Nested(), loop)


def test_inputs_may_require_gradients() -> None:
    def loop(model: nn.Module) -> Any:
        gradients = []
        for i in range(2):
            x = batch(seed=i).requires_grad_()
            scaled = x * 2
            model(scaled).sum().backward()
            gradients.append(x.grad)
        return gradients

    assert_same(Mlp(), loop)


def test_a_batch_may_be_any_slice_of_a_larger_tensor() -> None:
    data = batch(rows=200)

    def loop(model: nn.Module) -> Any:
        outputs = []
        for begin in (0, 32, 5, 168, 64, 0):
            output = model(data[begin:begin + 32])
            output.sum().backward()
            outputs.append(output.detach())
        return outputs

    assert_same(Mlp(), loop)


class Pairs(Mlp):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return super().forward(x) * super().forward(y * x)


def test_two_inputs_may_be_slices_of_one_tensor() -> None:
    data = batch(rows=200)

    def loop(model: nn.Module) -> Any:
        outputs = []
        for a, b in ((0, 64), (32, 0), (7, 5), (0, 0), (100, 160)):
            output = model(data[a:a + 32], data[b:b + 32])
            output.sum().backward()
            outputs.append(output.detach())
        same = batch()
        model(same, same).sum().backward()
        model(same, batch(seed=3)).sum().backward()
        return outputs

    assert_same(Pairs(layers=1), loop)


def test_a_second_forward_may_come_before_the_first_backward() -> None:
    def loop(model: nn.Module) -> Any:
        for i in range(2):
            first = model(batch(seed=i)).sum()
            second = model(batch(seed=10 + i)).square().sum()
            first.backward()
            second.backward()

    assert_same(Mlp(), loop, budget=None)


def test_two_forwards_may_share_one_backward() -> None:
    def loop(model: nn.Module) -> Any:
        for i in range(2):
            (model(batch(seed=i)).sum() + model(batch(seed=10 + i)).square().sum()).backward()

    assert_same(Mlp(), loop, budget=None)


@pytest.mark.usefixtures("own_cache")
def test_a_third_batch_size_is_not_traced_again() -> None:
    captured = []

    def loop(model: nn.Module) -> Any:
        captured.clear()
        before = counters["aot_autograd"]["total"]
        for rows in (32, 8, 32, 8, 5, 32):
            model(batch(rows=rows)).sum().backward()
            captured.append(counters["aot_autograd"]["total"] - before)

    assert_same(Mlp(), loop, budget=None)
    assert captured == [1, 2, 2, 2, 2, 2]


class Checkpointed(Mlp):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(lambda t, layer=layer: torch.tanh(layer(t)), x, use_reentrant=False)
        return self.head(x)


def test_checkpoints_inside_of_the_model() -> None:
    assert_same(Checkpointed(), lambda m: steps(m, torch.optim.SGD(m.parameters(), lr=0.1)))


class Buffers(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
            self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return super().forward(x - self.average)


def test_other_buffers_are_updated_once() -> None:
    model = assert_same(Buffers(), lambda m: steps(m, torch.optim.SGD(m.parameters(), lr=0.1)))
    assert int(model.calls) == 3


def test_two_models_train_side_by_side() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Mlp(), Mlp(layers=2)

    both = Both().to(DEVICE)
    plain, planned = copy.deepcopy(both), copy.deepcopy(both)
    for part in (planned.a, planned.b):
        reprise.compile(part, ROOMY)
    for model in (plain, planned):
        for i in range(2):
            (model.a(batch(seed=i)).sum() + model.b(batch(seed=i)).sum()).backward()
    for p, q in zip(plain.parameters(), planned.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)
