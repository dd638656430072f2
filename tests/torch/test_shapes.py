"""Models that are called with inputs of many sizes: one capture, plans for every size, the bits of eager."""

from __future__ import annotations

import copy
import logging
import math
import random
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import reprise

pytestmark = pytest.mark.usefixtures("own_cache", "one_thread")


class Attends(nn.Module):
    """Attention, dropout and a loss inside, over sequences of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.attend = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)
        self.mix = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 32))
        self.head = nn.Linear(32, 50)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words)
        x = x + self.attend(x, x, x, need_weights=False)[0]
        x = x + self.mix(x)
        return nn.functional.cross_entropy(self.head(x)[:, :-1].flatten(0, 1), words[:, 1:].flatten())

    def inputs(self, batch: int, length: int) -> Tensor:
        return torch.randint(0, 50, (batch, length))


class Convolves(nn.Module):
    """Convolutions with strides, batch norm and pooling, over images of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(16, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))

    def inputs(self, batch: int, side: int) -> Tensor:
        return torch.randn(batch, 3, side, side)


class Pads(nn.Module):
    """Pads to a multiple of eight, and pools by a quarter of the length."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        x = self.mix(nn.functional.pad(x, (0, 0, 0, 8 * math.ceil(length / 8) - length)))
        return x[:, :math.floor(length / 4)].square().mean()

    def inputs(self, batch: int, length: int) -> Tensor:
        return torch.randn(batch, length, 16)


@torch.library.custom_op("reprise_shapes::by_columns", mutates_args=())
def by_columns(x: Tensor) -> Tensor:
    """The same numbers, column by column in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2).mul_(2)


@by_columns.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)  # which is row by row


by_columns.register_autograd(lambda _, grad: 2 * grad, setup_context=lambda **_: None)


class LaysOut(nn.Module):
    """Has a result that lies in memory in another way than its fake tensor says."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return (by_columns(self.mix(x)).tanh().exp() * x.shape[1]).mean()

    def inputs(self, batch: int, length: int) -> Tensor:
        return torch.randn(batch, length, 16)


lengths_that_ran: list[int] = []


@torch.library.custom_op("reprise_shapes::noted", mutates_args=())
def noted(x: Tensor) -> Tensor:
    """Notes for which lengths it runs, be it in a step or to be measured."""
    lengths_that_ran.append(x.shape[1])
    return 2 * x


@noted.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


noted.register_autograd(lambda _, grad: 2 * grad, setup_context=lambda **_: None)


class Notes(nn.Module):
    """A chain of calls, each of which notes that it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 64)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(x)
        for _ in range(4):
            x = noted(x).tanh()
        return x.square().mean()

    def inputs(self, batch: int, length: int) -> Tensor:
        return torch.randn(batch, length, 16)


class Branches(nn.Module):
    """Does something else with long inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.short, self.long = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return (self.short(x) if x.shape[1] < 12 else self.long(x).tanh()).square().mean()

    def inputs(self, batch: int, length: int) -> Tensor:
        return torch.randn(batch, length, 16)


class Speaks(nn.Module):
    """Few layers and many words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4001, 32)
        self.mix = nn.Sequential(nn.Linear(32, 32), nn.GELU())
        self.head = nn.Linear(32, 4001, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.head(self.mix(self.embed(words))).flatten(0, 1), words.flatten())

    def inputs(self, batch: int, length: int) -> Tensor:
        return torch.randint(0, 4001, (batch, length))


class Narrows(nn.Module):
    """Convolutions whose algorithm depends on how large and how odd the images are."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 3, stride=4, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 1, stride=2), nn.ReLU(),
            nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(),
            nn.Conv2d(128, 256, 1, stride=2))

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images).square().mean()

    def inputs(self, batch: int, side: int) -> Tensor:
        return torch.randn(batch, 3, side, side)


class Focuses(nn.Module):
    """Attention, whose kernel takes larger blocks of queries for long sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mix(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(*parts).square().mean()

    def inputs(self, batch: int, length: int) -> Tensor:
        return torch.randn(batch, length, 16)


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Loss, gradients and buffers after one step."""
    model.zero_grad()
    torch.manual_seed(1)
    out = model(x)
    loss = out if out.dim() == 0 else nn.functional.cross_entropy(out, torch.arange(len(out)) % out.shape[1])
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None),
            *(b.clone() for b in model.buffers())]


def differences(model: Any, plain: Any, sizes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    wrong = []
    for size in sizes:
        x = plain.inputs(*size)
        if any(not torch.equal(a, b) for a, b in zip(step(model, x), step(plain, x), strict=True)):
            wrong.append(size)
    return wrong


def pair(kind: type[nn.Module], **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    plain = kind()
    return reprise.compile(copy.deepcopy(plain), **options), plain


def messages(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(("kind", "sizes"), [
    (Attends, [(4, 16), (6, 24), (5, 17), (2, 9), (4, 16), (8, 31)]),
    (Convolves, [(20, 32), (24, 48), (17, 40), (32, 64), (18, 56)]),
    (Pads, [(4, 17), (6, 25), (5, 30), (2, 41), (3, 39)]),
    (LaysOut, [(4, 17), (6, 25), (5, 30), (2, 41), (3, 39)]),
])
def test_later_sizes_have_the_bits_of_eager_without_being_captured(
        kind: type[nn.Module], sizes: list[tuple[int, int]], caplog: pytest.LogCaptureFixture) -> None:
    model, plain = pair(kind)
    with caplog.at_level(logging.INFO, "reprise"):
        assert differences(model, plain, sizes) == []
    others = len(set(sizes)) - 1
    assert messages(caplog, "another size") == others
    assert messages(caplog, "profiled ") <= 1 + (kind is LaysOut)  # the first size alone, again once its layouts are known
    assert messages(caplog, "captured by itself") == 0


@pytest.mark.parametrize("sizes", [[(4, 16), (6, 24), (5, 17), (3, 30)], [(4, 16), (6, 16), (5, 16), (9, 16)]])
def test_masks_that_are_not_needed_are_not_made_at_any_size(sizes: list[tuple[int, int]],
                                                             caplog: pytest.LogCaptureFixture) -> None:
    """Models of transformers look at positions, which count by one whatever the sizes are."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    plain = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=1, n_embd=32, n_head=2, vocab_size=50, n_positions=32)).train()
    model = reprise.compile(copy.deepcopy(plain))
    with caplog.at_level(logging.INFO, "reprise"):
        for size in sizes:
            words = torch.randint(0, 50, size)
            found = []
            for one in (plain, model):
                one.zero_grad()
                torch.manual_seed(1)
                one(input_ids=words, labels=words).loss.backward()
                found.append([p.grad.clone() for p in one.parameters()])
            assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)), size
    assert messages(caplog, "another size") == len(sizes) - 1
    assert messages(caplog, "captured by itself") == 0


class Labelled(Convolves):
    """Two inputs whose sizes have to agree."""

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        return nn.functional.cross_entropy(self.head(self.body(images)), labels)


def test_sizes_of_two_inputs_that_have_to_agree_are_one(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = pair(Labelled)
    with caplog.at_level(logging.INFO, "reprise"):
        for batch, side in ((20, 32), (24, 48), (17, 40), (32, 64)):
            model(torch.randn(batch, 3, side, side), labels=torch.randint(0, 4, (batch,))).backward()
    assert messages(caplog, "another size") == 3


def test_shapes_outside_of_the_guards_are_right_too() -> None:
    """A batch of one, and fewer than 16 images, for which the CPU has another convolution."""
    model, plain = pair(Convolves)
    assert differences(model, plain, [(20, 32), (17, 40), (1, 32), (4, 32), (3, 35), (20, 32), (30, 32)]) == []


def test_a_model_that_changes_is_traced_again() -> None:
    model, plain = pair(Attends)
    sizes = [(4, 16), (6, 24), (5, 17)]
    assert differences(model, plain, sizes) == []
    for one in (model, plain):
        one.mix[3].p = 0.5
    assert differences(model, plain, [*reversed(sizes), (3, 11)]) == []


def test_a_model_that_branches_on_its_length_never_gives_a_wrong_result() -> None:
    model, plain = pair(Branches)
    assert differences(model, plain, [(4, 5), (3, 7), (4, 20), (5, 30), (2, 11), (2, 12), (9, 13), (1, 1), (1, 40)]) == []


class Scales(Branches):
    def forward(self, x: Tensor) -> Tensor:
        return (self.short(x) * x.shape[1] ** -0.5).square().mean()


def test_a_step_that_needs_more_than_whole_numbers_is_captured_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    model, plain = pair(Scales)
    with caplog.at_level(logging.INFO, "reprise"):
        assert differences(model, plain, [(4, 5), (3, 7), (4, 9)]) == []
    assert messages(caplog, "every shape is captured by itself") == 1


def test_the_budget_is_kept_at_every_length() -> None:
    model, plain = pair(Attends)
    step(model, plain.inputs(8, 48))
    largest = model.plan.measured_peak_bytes
    reprise.restore(model)
    budget = int(largest * 0.8)
    reprise.compile(model, budget=budget)
    lengths = random.Random(3)
    recomputed = 0
    for _ in range(40):
        step(model, plain.inputs(8, lengths.randint(2, 48)))
        assert model.plan.measured_peak_bytes <= budget
        recomputed += model.plan.recompute_ns > 0
    assert recomputed > 0


@pytest.mark.parametrize(("kind", "sizes"), [
    (Narrows, [(32, 64), (24, 52), (18, 45), (20, 33)]),
    (Focuses, [(2, 512), (2, 700), (2, 800), (3, 401)]),
])
def test_workspaces_are_those_that_are_measured_at_each_size(kind: type[nn.Module], sizes: list[tuple[int, int]]) -> None:
    """Kernels choose algorithms and buffers by size, so what was right at two sizes may be too little at a third."""
    model, plain = pair(kind)
    for size in sizes:
        step(model, plain.inputs(*size))
        alone = reprise.compile(copy.deepcopy(plain))
        step(alone, plain.inputs(*size))
        assert model.plan.costs.workspace_bytes == alone.plan.costs.workspace_bytes, size


def test_forms_in_slices_are_measured_for_one_later_size_alone(caplog: pytest.LogCaptureFixture) -> None:
    model, plain = pair(Speaks)
    step(model, plain.inputs(4, 64))
    fixed = 2 * sum(parameter.nbytes for parameter in plain.parameters())
    model.plan.set_budget(fixed + int(0.75 * (model.plan.measured_peak_bytes - fixed)))
    sizes = [(4, length) for length in (64, 60, 58, 56, 62, 61, 59, 57, 55, 63)]
    with caplog.at_level(logging.INFO, "reprise"):
        assert differences(model, plain, sizes) == []
    assert model.plan.measured_peak_bytes <= model.plan.budget_bytes
    assert messages(caplog, " slices") >= 8
    forms = 5  # which the first size measures for itself, and one later size for all of them
    assert messages(caplog, "profiled ") <= 2 * forms


def test_a_size_that_cannot_fit_is_refused_with_the_largest_that_can() -> None:
    model, plain = pair(Attends)
    step(model, plain.inputs(8, 32))
    model.zero_grad()
    reprise.compile(model, budget=model.plan.measured_peak_bytes)
    step(model, plain.inputs(8, 24))
    step(model, plain.inputs(8, 20))
    with pytest.raises(reprise.InfeasibleBudget, match="dimension 1 of input 0 is at most") as refused:
        step(model, plain.inputs(8, 400))
    named = re.search(r"at most (\d+)", str(refused.value))
    assert named is not None
    length = int(named[1])
    assert length >= 32
    step(model, plain.inputs(8, length))
    assert model.plan.measured_peak_bytes <= model.plan.budget_bytes


def test_nothing_runs_or_is_measured_for_a_size_that_cannot_fit(caplog: pytest.LogCaptureFixture) -> None:
    model, plain = pair(Notes)
    step(model, plain.inputs(8, 32))
    model.zero_grad()
    reprise.compile(model, budget=model.plan.measured_peak_bytes)
    step(model, plain.inputs(8, 24))
    step(model, plain.inputs(8, 20))
    known = len(model.plan.sessions)
    for length in (4000, 60, 4000):
        lengths_that_ran.clear()
        with caplog.at_level(logging.INFO, "reprise"), \
                pytest.raises(reprise.InfeasibleBudget, match="dimension 1 of input 0 is at most") as refused:
            model(plain.inputs(8, length))
        named = re.search(r"input 0 is at most (\d+)", str(refused.value))
        assert named is not None and 24 <= int(named[1]) < length
        assert all(ran < length for ran in lengths_that_ran)
        assert refused.value.smallest_budget_bytes > refused.value.budget_bytes
        del refused  # and with it the inputs
    assert messages(caplog, "captured by itself") == 0
    assert len(model.plan.sessions) == known  # a size that was refused is not kept
    lengths_that_ran.clear()
    assert differences(model, plain, [(8, int(named[1])), (8, 30)]) == []
    assert lengths_that_ran.count(30) > 0


def test_the_order_of_sizes_does_not_change_their_plans() -> None:
    def plans(sizes: list[int]) -> dict[int, Any]:
        model, plain = pair(Attends)
        step(model, plain.inputs(8, 48))
        model.plan.set_budget(int(model.plan.measured_peak_bytes * 0.8))
        found = {}
        for size in sizes:
            step(model, plain.inputs(8, size))
            step(model, plain.inputs(8, size))
            found[size] = model.plan.actions.actions
        return found

    assert plans([40, 44, 36]) == plans([36, 40, 44])


def test_sizes_that_were_not_used_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRISE_MOST_SIZES", "3")
    model, plain = pair(Attends)
    assert differences(model, plain, [(4, length) for length in (10, 11, 12)]) == []
    model.zero_grad()
    held = model(plain.inputs(4, 11))
    assert differences(model, plain, [(4, length) for length in range(13, 20)]) == []
    assert len(model.plan.sessions) <= 4
    model.zero_grad()
    held.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_verify_takes_inputs_of_several_shapes(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model = Attends()
    first, *others = (model.inputs(*size) for size in ((8, 48), (6, 40), (8, 17), (3, 9)))
    whole = reprise.verify(model, first)
    with caplog.at_level(logging.INFO, "reprise"):
        found = reprise.verify(model, first, budget=int(0.8 * whole.planned_peak_bytes), also=others)
    assert found.ok, str(found)
    assert messages(caplog, "another size") == 3
    assert [other.shapes for other in found.others] == ["(6, 40)", "(8, 17)", "(3, 9)"]
    assert str(found).count("the same") == 4 and "(8, 17)" in str(found)
    peaks = [one.planned_peak_bytes for one in (found, *found.others)]
    assert peaks[0] > peaks[1] > peaks[2] > peaks[3]
    found.others[1].different.append("loss")
    assert not found.ok


def test_verify_says_that_fused_kernels_are_checked_shape_by_shape() -> None:
    model = Attends()
    with pytest.raises(ValueError, match="one at a time"):
        reprise.verify(model, model.inputs(8, 48), also=[model.inputs(8, 40)], engine="fused")
