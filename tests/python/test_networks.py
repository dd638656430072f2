"""Tests the networks that the measurements train: they have the sizes of the papers, and each can be trained."""

import pytest
import torch
from models.zoo import CASES, FULL_CASES
from torch import Tensor

PARAMETERS = {
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "vgg19": 143_667_240,
    "densenet161": 28_681_000,
    "googlenet": 13_004_888,
    "hf_resnet": 25_557_032,
    "hf_gpt2": 124_439_808,
    "hf_vit": 86_567_656,
}


def step(name: str, seed: int = 0) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The loss and the gradients of one step in eager."""
    torch.manual_seed(seed)
    case = CASES[name]
    model = case.make_model().train()
    args, kwargs = case.make_inputs(seed=seed)
    loss = case.loss(model(*args, **kwargs))
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def test_every_network_has_both_sizes() -> None:
    assert CASES.keys() == FULL_CASES.keys()
    assert all(case.name == name for cases in (CASES, FULL_CASES) for name, case in cases.items())


@pytest.mark.parametrize("name", PARAMETERS)
def test_full_networks_have_the_parameters_of_the_papers(name: str) -> None:
    with torch.device("meta"):
        model = FULL_CASES[name].make_model()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", list(CASES)[:7])
def test_full_networks_take_the_inputs_of_the_papers(name: str) -> None:
    case = FULL_CASES[name]
    args, _ = case.make_inputs(batch=1)
    with torch.device("meta"):
        output = case.make_model()(*(arg.to("meta") for arg in args))
    first = output[0] if isinstance(output, tuple) else output
    expected = {"unet": (1, 2, 388, 388), "pspnet": (1, 17, 713, 713)}
    assert first.shape == expected.get(name, (1, 1000))


@pytest.mark.parametrize("name", CASES)
def test_tiny_networks_train(name: str) -> None:
    loss, gradients = step(name)
    assert loss.shape == () and loss.isfinite()
    for parameter, gradient in gradients.items():
        assert gradient is not None, parameter
        assert gradient.isfinite().all(), parameter
    assert any(gradient.count_nonzero() > 0 for gradient in gradients.values())


def test_seeds_decide_everything() -> None:
    for name in ("googlenet", "dropout_transformer"):
        loss, gradients = step(name)
        again, gradients_again = step(name)
        assert loss == again and loss != step(name, seed=1)[0]
        assert all(torch.equal(gradients[key], gradients_again[key]) for key in gradients)


def test_auxiliary_heads_answer_in_training_only() -> None:
    for name, outputs in {"googlenet": 3, "pspnet": 2}.items():
        model = CASES[name].make_model()
        args, _ = CASES[name].make_inputs()
        assert len(model.train()(*args)) == outputs
        assert isinstance(model.eval()(*args), Tensor)
