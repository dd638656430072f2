"""Tests training steps as files: what is in them, that C++ trains them to the same bits, and what is refused."""

from __future__ import annotations

import copy
import gc
import os
import re
import subprocess
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from steps import bits_of
from torch import Tensor, nn
from training import state_of

import reprise
from reprise.native import _torch

# The program of tests/runtime/train_program.cc in the build folder.
DRIVER = Path(reprise.__file__).parents[2] / "tests" / "runtime" / "train_program"
RATE = 0.05

Batch = tuple[Tensor, ...]
Loss = Callable[..., Tensor]


class Net(nn.Module):
    """A network with buffers that change and one that does not, statistics that are updated twice, random numbers and a
    constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.twice = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8 * 64, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.frozen.weight.data = self.frozen.weight.data.t()  # Its strides are unusual.
        self.unused = nn.Parameter(torch.zeros(3))
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)))
        x = self.twice(F.gelu(self.twice(x)))
        x = self.frozen(self.head(self.drop(x.flatten(1))))
        return x * self.scale + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])


def net() -> tuple[nn.Module, Loss, Callable[[int], Batch]]:
    def batch(seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(4, 3, 8, 8, generator=generator), torch.randint(0, 5, (4,), generator=generator)

    return Net(), lambda model, x, y: F.cross_entropy(model(x), y), batch


def gpt2() -> tuple[nn.Module, Loss, Callable[[int], Batch]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=96, n_positions=32, bos_token_id=0, eos_token_id=0)

    def batch(seed: int) -> Batch:
        return (torch.randint(0, 96, (2, 16), generator=torch.Generator().manual_seed(seed)),)

    return GPT2LMHeadModel(config), lambda model, ids: model(input_ids=ids, labels=ids).loss, batch


MODELS = {"net": net, "gpt2": gpt2}


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, Loss, Callable[[int], Batch]]:
    torch.manual_seed(0)
    model, loss, batch = MODELS[request.param]()
    return model.train(), loss, batch


def test_files_hold_the_step_and_the_parameters(case: Any, tmp_path: Path) -> None:
    model, loss, batch = case
    path = tmp_path / "it.program.json"
    assert reprise.export(model, loss, batch(0), path) == tmp_path / "it.parameters.pt"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["it.parameters.pt", "it.program.json"]
    text = path.read_text()
    program, names, inputs, gradients = _torch.parse_program(text, "it.program.json")
    assert _torch.format_program(program, names, inputs, gradients) == text

    state = dict([*model.named_parameters(), *model.named_buffers()])
    saved = torch.load(tmp_path / "it.parameters.pt", weights_only=True)
    assert list(saved) == names == list(state)
    assert all(bits_of(saved[name]) == bits_of(state[name]) for name in names)
    assert not any(tensor.requires_grad for tensor in saved.values())
    trained = {names[i] for i in gradients if i >= 0}
    assert trained == {n for n, p in model.named_parameters() if p.requires_grad and n != "unused"}
    assert {i for i in inputs if i >= 0} == set(range(len(batch(0))))


def test_equal_steps_are_equal_files(tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        torch.manual_seed(0)
        model, loss, batch = net()
        reprise.export(model, loss, batch(0), tmp_path / f"{name}.program.json")
        texts.append((tmp_path / f"{name}.program.json").read_text())
    assert texts[0] == texts[1]


def test_the_model_is_left_as_it_was(case: Any, tmp_path: Path) -> None:
    model, loss, batch = case
    reprise.compile(model)
    before, generator = state_of(model), torch.get_rng_state()
    call = model._compiled_call_impl
    reprise.export(model, loss, batch(0), tmp_path / "it.program.json")
    assert state_of(model) == before
    assert torch.equal(generator, torch.get_rng_state())
    assert model._compiled_call_impl is call
    assert model.training


def test_the_model_is_not_kept(tmp_path: Path) -> None:
    model, loss, batch = net()
    parameter = weakref.ref(model.conv.weight)
    reprise.export(model, loss, batch(0), tmp_path / "it.program.json")
    del model
    gc.collect()
    assert parameter() is None


def eager(model: nn.Module, loss: Loss, batches: list[Batch]) -> dict[str, Tensor]:
    """Trains with plain SGD in eager."""
    torch.manual_seed(7)
    losses = {}
    for i, batch in enumerate(batches):
        value = loss(model, *batch)
        value.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=RATE)
        model.zero_grad()
        losses[f"loss {i}"] = value.detach()
    return {**dict(model.named_parameters()), **dict(model.named_buffers()), **losses}


@pytest.mark.skipif(not DRIVER.exists(), reason="the build has no tests: configure it with -DREPRISE_TESTS=ON")
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_cpp_trains_to_the_bits_of_eager(case: Any, tmp_path: Path, share: float) -> None:
    model, loss, batch = case
    batches = [batch(seed) for seed in range(3)]
    reprise.export(model, loss, batch(99), tmp_path / "it.program.json")
    torch.save({f"{i}.{k}": t for i, tensors in enumerate(batches) for k, t in enumerate(tensors)},
               tmp_path / "batches.pt")
    subprocess.run([DRIVER, "it.program.json", "batches.pt", str(RATE), "3", "trained.pt", str(share)], cwd=tmp_path,
                   check=True, env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())})
    trained = torch.load(tmp_path / "trained.pt", weights_only=True)
    expected = eager(copy.deepcopy(model), loss, batches)
    assert list(trained) == list(expected)
    different = [name for name in expected if bits_of(trained[name]) != bits_of(expected[name])]
    assert not different, different

    returned = copy.deepcopy(model)
    returned.load_state_dict(trained, strict=False)
    kept = [n for n, t in returned.state_dict().items() if n in expected and bits_of(t) != bits_of(expected[n])]
    assert not kept, kept


class Images(nn.Module):
    """Convolutions with strides and statistics, over images of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2),
                                  nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


def images() -> tuple[nn.Module, Loss, Callable[..., Batch], list[tuple[int, int]]]:
    def batch(seed: int, size: tuple[int, int]) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(size[0], 3, size[1], size[1], generator=generator), torch.randint(0, 5, size[:1], generator=generator)

    return Images(), lambda model, x, y: F.cross_entropy(model(x), y), batch, [(24, 32), (20, 24), (17, 29), (18, 32), (20, 24)]


def sentences() -> tuple[nn.Module, Loss, Callable[..., Batch], list[tuple[int, int]]]:
    model, loss, _ = gpt2()

    def batch(seed: int, size: tuple[int, int]) -> Batch:
        return (torch.randint(0, 96, size, generator=torch.Generator().manual_seed(seed)),)

    return model, loss, batch, [(4, 32), (3, 20), (2, 7), (4, 31), (4, 32), (3, 9)]


MANY_SIZES = {"images": images, "sentences": sentences}


class Exported:
    """A file for the sizes of the first batch and all others, and the driver that trains it."""

    def __init__(self, model: nn.Module, loss: Loss, batch: Callable[..., Batch], sizes: list[tuple[int, int]], folder: Path):
        self.model, self.loss, self.batch, self.sizes, self.folder = model, loss, batch, sizes, folder
        reprise.export(model, loss, batch(99, sizes[0]), folder / "it.program.json", also=[batch(98, sizes[1])])

    def train(self, batches: list[Batch], share: float) -> subprocess.CompletedProcess[str]:
        torch.save({f"{i}.{k}": t for i, tensors in enumerate(batches) for k, t in enumerate(tensors)},
                   self.folder / "batches.pt")
        return subprocess.run([DRIVER, "it.program.json", "batches.pt", str(RATE), str(len(batches)), "trained.pt", str(share)],
                              cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())})


@pytest.fixture(params=MANY_SIZES, scope="module")
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    torch.manual_seed(0)
    model, loss, batch, sizes = MANY_SIZES[request.param]()
    return Exported(model.train(), loss, batch, sizes, tmp_path_factory.mktemp(request.param))


@pytest.mark.skipif(not DRIVER.exists(), reason="the build has no tests: configure it with -DREPRISE_TESTS=ON")
@pytest.mark.parametrize("share", [1.0, 0.85])
def test_cpp_trains_all_sizes_of_one_file_to_the_bits_of_eager(exported: Exported, share: float) -> None:
    """The driver fails if a peak is not the predicted one, to the byte, or is above the budget."""
    batches = [exported.batch(seed, size) for seed, size in enumerate(exported.sizes)]
    ran = exported.train(batches, share)
    assert ran.returncode == 0, ran.stderr
    trained = torch.load(exported.folder / "trained.pt", weights_only=True)
    expected = eager(copy.deepcopy(exported.model), exported.loss, batches)
    assert [name for name in expected if bits_of(trained[name]) != bits_of(expected[name])] == []


@pytest.mark.skipif(not DRIVER.exists(), reason="the build has no tests: configure it with -DREPRISE_TESTS=ON")
def test_cpp_says_which_sizes_fit_and_for_which_the_file_is(exported: Exported) -> None:
    rows, length = exported.sizes[0]
    first = exported.batch(0, exported.sizes[1])
    ran = exported.train([first, exported.batch(1, (40 * rows, length))], 0.85)
    assert ran.returncode == 1
    found = re.search(r"This budget is enough if batch\[0\].size\(0\) is at most (\d+)", ran.stderr)
    assert found is not None, ran.stderr
    ran = exported.train([first, exported.batch(1, (int(found[1]), length))], 0.85)
    assert ran.returncode == 0, ran.stderr

    ran = exported.train([first, exported.batch(1, (1, length))], 0.85)
    assert ran.returncode == 1
    assert "was exported for other sizes than those of this batch" in ran.stderr
    assert re.search(r"It holds where .*if batch\[0\].size\(0\) is at least \d+", ran.stderr), ran.stderr


def test_a_file_for_many_sizes_is_the_capture_at_each_of_them(exported: Exported) -> None:
    text = (exported.folder / "it.program.json").read_text()
    family, names, inputs, gradients, symbols, conditions = _torch.parse_family(text, "it.program.json")
    assert _torch.format_family(family, names, inputs, gradients, symbols, conditions) == text
    rows, length = exported.sizes[2]
    reprise.export(exported.model, exported.loss, exported.batch(97, (rows, length)), exported.folder / "one.program.json")
    captured, *_ = _torch.parse_program((exported.folder / "one.program.json").read_text(), "one.program.json")
    assert {here for _, _, here, _, _ in symbols} == set(exported.sizes[0])
    there = [{exported.sizes[0][0]: rows, exported.sizes[0][1]: length}[here] for _, _, here, _, _ in symbols]
    assert family.at(there).difference(captured) is None


def refused(tmp_path: Path, model: nn.Module, loss: Loss, batch: Any, error: type[Exception], what: str,
            name: str = "it.program.json") -> None:
    with pytest.raises(error, match=what):
        reprise.export(model, loss, batch, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_refusals_write_nothing(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)

    def mean(model: nn.Module, *inputs: Tensor) -> Tensor:
        return sum(model(x).mean() for x in inputs)

    refused(tmp_path, model, mean, (x,), ValueError, "must end with .program.json", name="it.json")
    refused(tmp_path, model, mean, x, TypeError, "a tuple of tensors")
    refused(tmp_path, model, mean, (x, 3), TypeError, "a tuple of tensors")
    refused(tmp_path, model, mean, (x, x), ValueError, "two tensors of the batch are the same one")
    refused(tmp_path, model, lambda m, x: m(x), (x,), reprise.Unsupported, re.escape("it returns ((4, 2))"))
    refused(tmp_path, model, lambda m, x: (m(x).mean(), m(x).sum()), (x,), reprise.Unsupported, "one number")
    refused(tmp_path, model.requires_grad_(False), mean, (x,), reprise.RepriseError, "nothing that it returns requires a grad")


def test_batches_of_other_sizes_have_to_be_of_one_step(tmp_path: Path) -> None:
    class Branches(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return (super().forward(x) if len(x) < 12 else 2 * super().forward(x)).mean()

    def refused_with(also: list[Batch], error: type[Exception], what: str, **options: Any) -> None:
        with pytest.raises(error, match=what):
            reprise.export(model, lambda m, x: m(x), batch, tmp_path / "it.program.json", also=also, **options)
        assert list(tmp_path.iterdir()) == []

    model, batch = Branches(3, 2), (torch.randn(4, 3),)
    refused_with([(torch.randn(12, 3),)], reprise.Unsupported, r"with a batch of the sizes \(12, 3\) it is another step")
    refused_with([(torch.randn(4, 3),)], ValueError, "have the sizes of `inputs`")
    refused_with([(torch.randn(4, 3, 1),)], ValueError, "in more than sizes")
    refused_with([(torch.randn(5, 3),)], ValueError, "for one size", engine="fused")


def test_tensors_without_a_name_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    model.offset = torch.randn(2)
    refused(tmp_path, model, lambda m, x: (m(x) + m.offset).mean(), (torch.randn(4, 3),), reprise.Unsupported,
            "register it as a buffer")


def test_a_failed_write_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, loss, batch = nn.Linear(3, 2), lambda m, x: m(x).mean(), (torch.randn(4, 3),)
    path = tmp_path / "it.program.json"
    path.write_text("older")

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space left"):
        reprise.export(model, loss, batch, path)
    assert [p.name for p in tmp_path.iterdir()] == ["it.program.json"]
    assert path.read_text() == "older"


def test_a_broken_file_is_refused_by_name_and_place() -> None:
    with pytest.raises(ValueError, match=r"net\.program\.json:1:3: "):
        _torch.parse_program("{}x", "net.program.json")
