"""Steps in slices: budgets below what one call of the whole step takes, with the bits of eager."""

from __future__ import annotations

import copy
import gc
import json
from pathlib import Path

import pytest
import torch
from models.zoo import CASES
from steps import model_of, run_step
from torch import Tensor, nn
from torch.nn import functional

import reprise
from reprise.api.verification import Verification

WORDS = 4001


class Language(nn.Module):
    """Words in, the loss out; few layers and many words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        self.layer = nn.Linear(32, 32)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(32, WORDS, bias=False)

    def forward(self, words: Tensor, labels: Tensor) -> Tensor:
        x = self.drop(functional.gelu(self.layer(self.embed(words))))
        return functional.cross_entropy(self.head(x).view(-1, WORDS), labels.view(-1))


def batch(seed: int, length: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, WORDS, (4, length + 1), generator=generator)
    labels = words[:, 1:].clone()
    labels[:, -3:] = -100
    return words[:, :-1], labels


def smallest(model: nn.Module, *args: Tensor, **settings: object) -> int:
    reprise.compile(model, budget=1, planning_seconds=1, **settings)
    with pytest.raises(reprise.InfeasibleBudget) as refused:
        model(*args)
    reprise.restore(model)
    smallest_bytes = refused.value.smallest_budget_bytes
    del refused
    gc.collect()  # What is collected inside of a later step would leave it a lower peak than was predicted.
    return smallest_bytes


def steps(model: nn.Module, count: int = 3) -> list[Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    losses = []
    for seed in range(count):
        optimizer.zero_grad()
        loss = model(*batch(seed))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        del loss
    return [*losses, *(p.detach() for p in model.parameters()), *(p.grad for p in model.parameters())]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_budget_below_the_whole_step_is_kept_with_the_bits_of_eager() -> None:
    torch.manual_seed(0)
    plain = Language()
    model = copy.deepcopy(plain)
    whole = smallest(model, *batch(0), slices=False)
    least = smallest(model, *batch(0))
    assert least < whole
    budget = (least + whole) // 2
    reprise.compile(model, budget=budget, planning_seconds=1)
    found = steps(model)
    assert model.plan.slices > 1
    assert "head" in model.plan.sliced
    assert model.plan.measured_peak_bytes == model.plan.peak_bytes <= budget
    assert same(found, steps(plain))


def test_steps_of_many_sizes_run_in_slices_where_they_have_to() -> None:
    torch.manual_seed(0)
    plain = Language()
    model = copy.deepcopy(plain)
    whole, least = smallest(model, *batch(0), slices=False), smallest(model, *batch(0))
    budget = (least + whole) // 2
    reprise.compile(model, budget=budget, planning_seconds=1)
    slices = []
    for length in (64, 48, 60, 56, 20, 64, 58):
        gradients = []
        for one in (plain, model):
            one.zero_grad()
            torch.manual_seed(length)
            one(*batch(length, length)).backward()
            gradients.append([p.grad for p in one.parameters()])
        assert same(*gradients), length
        assert model.plan.measured_peak_bytes <= budget, length
        slices.append(model.plan.slices)
    assert slices[0] > 1 and slices[4] == 1 and slices[5] == slices[0]


def test_what_runs_in_slices_is_said(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Language()
    budget = smallest(model, *batch(0)) * 21 // 20
    reprise.compile(model, budget=budget, planning_seconds=1)
    model(*batch(0)).backward()
    explained = str(reprise.explain(model))
    assert f"slices                  {model.plan.slices}: mm, _log_softmax, gather" in explained
    assert " in head" in explained
    assert f"{model.plan.slices} slices" in repr(model.plan)
    report = json.loads(model.plan.report(tmp_path / "plan.json", curve_seconds=0).read_text())
    assert report["facts"]["slices"] == model.plan.slices_line
    model.zero_grad()
    verified = reprise.verify(model, batch(0), budget, planning_seconds=1)
    assert verified.ok, str(verified)
    assert verified.slices > 1
    assert f"{verified.slices} slices" in str(verified)


def test_a_plan_of_slices_is_saved_and_loaded(tmp_path: Path) -> None:
    torch.manual_seed(0)
    plain = Language()
    model = copy.deepcopy(plain)
    budget = smallest(model, *batch(0)) * 21 // 20
    reprise.compile(model, budget=budget, planning_seconds=1)
    model(*batch(0)).backward()
    slices, peak = model.plan.slices, model.plan.peak_bytes
    model.plan.save(tmp_path / "net.plan.json")
    model.zero_grad()
    reprise.compile(model, planning_seconds=1)
    model(*batch(0)).backward()
    assert model.plan.slices == 1
    model.zero_grad()
    model.plan.load(tmp_path / "net.plan.json")
    assert model.plan.slices == slices
    torch.manual_seed(5)
    loss = model(*batch(0))
    loss.backward()
    assert model.plan.measured_peak_bytes == model.plan.peak_bytes <= peak
    torch.manual_seed(5)
    expected = plain(*batch(0))
    expected.backward()
    assert torch.equal(loss, expected)
    assert same([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])


def test_a_model_with_enough_memory_stays_whole() -> None:
    torch.manual_seed(0)
    model = reprise.compile(Language(), budget="1GiB")
    model(*batch(0)).backward()
    assert model.plan.slices == 1
    assert model.plan.sliced == ""


def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"slices='often': choose True, False or 'close'"):
        reprise.compile(nn.Linear(2, 2), slices="often")


class Logits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        self.head = nn.Linear(32, WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(functional.gelu(self.embed(words)))


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.view(-1, WORDS), labels.reshape(-1))


def test_a_loss_outside_of_the_model_is_captured_with_it() -> None:
    torch.manual_seed(0)
    plain = Logits()
    model = copy.deepcopy(plain)
    words, labels = batch(0)
    logits_bytes = labels.numel() * WORDS * 4
    outside = smallest(copy.deepcopy(plain), words)
    inside = smallest(model, words, labels, loss=loss_of)
    assert inside < outside - logits_bytes // 2  # outside, the logits and their gradient are the caller's
    reprise.compile(model, budget=inside * 21 // 20, planning_seconds=1, loss=loss_of)
    loss = model(words, labels)
    loss.backward()
    expected = loss_of(plain(words), labels)
    expected.backward()
    assert torch.equal(loss, expected)
    assert same([p.grad for p in model.parameters()], [p.grad for p in plain.parameters()])
    assert model.plan.slices > 1
    with torch.no_grad():
        assert torch.equal(model(words), plain(words))


class Plain(Language):
    """The same without dropout, so that it can be compared with fp64."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.0)


def test_close_slices_take_less_and_are_close() -> None:
    torch.manual_seed(0)
    plain = Plain()
    model = copy.deepcopy(plain)
    exact = smallest(model, *batch(0))
    close = smallest(model, *batch(0), slices="close")
    assert close < exact - 4 * batch(0)[1].numel() * WORDS // 2  # the gradient of the logits is not there whole
    budget = (close + exact) // 2
    reprise.compile(model, budget=budget, planning_seconds=1, slices="close")
    loss = model(*batch(0))
    loss.backward()
    assert model.plan.slices > 1
    assert model.plan.measured_peak_bytes == model.plan.peak_bytes <= budget
    expected = plain(*batch(0))
    expected.backward()
    assert torch.allclose(loss, expected, rtol=1e-6)
    for found, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        assert float((found.grad - wanted.grad).abs().max() / wanted.grad.abs().max()) < 2e-6
    model.zero_grad()
    del loss, expected
    plain.zero_grad()
    verified = reprise.verify(model, batch(0), budget, planning_seconds=1, slices="close")
    assert verified.ok, str(verified)
    assert verified.slices > 1
    assert verified.close
    assert not verified.same and "as slices='close' may" in str(verified)
    assert verified.errors.keys() == {f"gradient of {name}" for name, _ in model.named_parameters()}
    assert "of eager's, of which 1.5 are allowed" in str(verified)


def test_close_slices_are_held_to_the_error_of_eager() -> None:
    """Each of two gradients may stray a little where it has few numbers, but not both."""
    def verified(*errors: tuple[float, float]) -> Verification:
        named = {f"gradient of {number}": each for number, each in enumerate(errors)}
        return Verification(None, 0, 0, None, 0.0, 0.0, "auto", different=["loss"], errors=named, tolerance=1e-7, close=True)

    assert verified((1e-6, 1.4e-6), (1e-6, 1.5e-6)).ok
    assert verified((1e-6, 1.58e-6), (1e-6, 1e-6)).ok
    far = verified((1e-6, 1e-7), (1e-6, 1.7e-6))
    assert not far.ok and not far.strays and "TOO LARGE in 1: gradient of 1" in str(far)
    strays = verified((1e-6, 1.55e-6), (1e-6, 1.55e-6))
    assert not strays.ok and not strays.far and strays.strays and "allowed  TOO LARGE" in str(strays)
    assert verified((0.0, 1e-17)).ok


class FewRows(nn.Module):
    """A sum over rows in fp32, of the weight of the head, is larger than the gradient of the logits in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 384)
        self.layer = nn.Linear(384, 384)
        self.head = nn.Linear(384, WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        x = functional.gelu(self.layer(self.embed(words)))
        return functional.cross_entropy(self.head(x).view(-1, WORDS).float(), words.view(-1))


def test_close_slices_need_no_more_than_exact_ones() -> None:
    torch.manual_seed(0)
    model = FewRows().to(torch.bfloat16)
    words = torch.randint(0, WORDS, (1, 512))
    whole, exact, close = (smallest(model, words, slices=slices) for slices in (False, True, "close"))
    assert exact < whole - words.numel() * WORDS
    small_tensors = 1024  # of other forms, which stay
    assert close <= exact + small_tensors


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(inplace=True),
            nn.MaxPool2d(2), nn.Conv2d(16, 8, 3, padding=1), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(128, 10)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.head(self.features(images).flatten(1)).float(), labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_convolutions_are_added_up_over_images(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    wide = Pictures().to(dtype).double()
    plain = copy.deepcopy(wide).to(dtype)
    model = copy.deepcopy(plain)
    images, labels = torch.randn(16, 3, 32, 32).to(dtype), torch.randint(0, 10, (16,))
    whole = smallest(model, images, labels, slices=False)
    close = smallest(model, images, labels, slices="close")
    largest = 16 * 16 * 32 * 32 * images.element_size()
    assert close < whole - largest
    reprise.compile(model, budget=(close + whole) // 2, planning_seconds=1, slices="close")
    model(images, labels).backward()
    assert model.plan.slices > 1
    assert model.plan.measured_peak_bytes == model.plan.peak_bytes
    plain(images, labels).backward()
    wide(images.double(), labels).backward()

    def error(of: nn.Module) -> float:
        """The mean over parameters, each in terms of its largest number."""
        pairs = zip(of.parameters(), wide.parameters(), strict=True)
        return sum(float((p.grad.double() - w.grad).abs().mean() / w.grad.abs().max()) for p, w in pairs)

    assert error(model) <= 1.5 * error(plain)


def test_a_network_in_close_slices_takes_what_is_predicted() -> None:
    case = CASES["vgg19"]
    model = model_of(case)
    args, kwargs = case.make_inputs()
    assert not kwargs
    budget = smallest(model, *args, slices="close") * 101 // 100
    reprise.compile(model, budget=budget, planning_seconds=1, slices="close")
    for seed in range(2):
        run_step(model, case, seed)
        assert model.plan.slices > 1
        assert model.plan.measured_peak_bytes == model.plan.peak_bytes <= budget


@pytest.mark.parametrize(("loss", "error", "message"), [
    (lambda *parts: parts[0], ValueError, "cannot be told"), (lambda: 0, ValueError, "takes no argument"),
    (3, TypeError, "give a function")])
def test_a_loss_that_cannot_be_called_is_refused(loss: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        reprise.compile(Logits(), loss=loss)


def test_a_call_without_targets_is_refused() -> None:
    model = reprise.compile(Logits(), loss=lambda logits, labels, weight: (logits * weight).sum() + labels.sum())
    with pytest.raises(TypeError, match="takes 2 targets"):
        model(batch(0)[0])


def test_a_loss_may_be_a_module() -> None:
    torch.manual_seed(0)
    model = reprise.compile(nn.Linear(4, 3), loss=nn.CrossEntropyLoss())
    x, target = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    loss = model(x, target)
    assert torch.equal(loss, functional.cross_entropy(functional.linear(x, model.weight, model.bias), target))
    loss.backward()
    assert model.weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_of_transformers_with_labels(dtype: torch.dtype) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, use_cache=False)
    plain = transformers.LlamaForCausalLM(config).to(dtype)
    model = copy.deepcopy(plain)
    words, _ = batch(1)

    def step(of: nn.Module) -> list[Tensor]:
        output = of(input_ids=words, labels=words)
        output.loss.backward()  # with the logits still there, as the plan has to expect
        found = [output.loss.detach(), *(p.grad.clone() for p in of.parameters())]
        of.zero_grad()
        return found

    def least(use: bool) -> int:
        reprise.compile(model, budget=1, planning_seconds=1, slices=use)
        with pytest.raises(reprise.InfeasibleBudget) as refused:
            model(input_ids=words, labels=words)
        reprise.restore(model)
        smallest_bytes = refused.value.smallest_budget_bytes
        del refused
        gc.collect()
        return smallest_bytes

    whole, sliced = least(False), least(True)
    assert sliced < whole
    reprise.compile(model, budget=(sliced + whole) // 2, planning_seconds=1)
    assert same(step(model), step(plain))
    assert model.plan.slices > 1
    assert model.plan.measured_peak_bytes == model.plan.peak_bytes
