"""What holds for the engine "fused" as for eager's operators: shapes, autocast, plans in files, reports, accumulation, dropout,
and that a budget compiles nothing."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fused_cases import Perceptron, Trained, WithLoss, budgets, check_bits_and_peaks, perceptron, same, two_blocks
from torch import Tensor, nn
from torch.nn import functional
from training import DEVICE, batch

import reprise
from reprise import memory
from reprise.api.fused_step import STEPS_BEFORE
from reprise.native import _torch
from reprise.trace.fused import inductor


@pytest.fixture
def lowerings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The partition of each lowering."""
    lower, made = inductor.lower_step, []

    def counted(*args: Any) -> Any:
        made.append(args[-1].partition)
        return lower(*args)

    monkeypatch.setattr(inductor, "lower_step", counted)
    return made


def recomputing() -> Trained:
    """A step at its smallest budget."""
    trained = perceptron()
    trained.model.plan.set_partition("near")
    trained.model.plan.set_budget(budgets(trained)[-1])
    trained.step()
    trained.step()
    assert trained.model.plan.recompute_ns > 0
    return trained


def test_every_shape_has_kernels_and_a_plan_of_its_own(own_cache: Path, lowerings: list[str]) -> None:
    torch.manual_seed(0)
    model = reprise.compile(WithLoss(Perceptron()).to(DEVICE), engine="fused", planning_seconds=1)
    model.plan.set_partition("near")
    for rows in (256, 128):
        check_bits_and_peaks(Trained(model, batch(rows)))
    peaks = []
    for rows in (256, 128, 256):
        Trained(model, batch(rows)).step()
        peaks.append(model.plan.peak_bytes)
    assert peaks[1] < peaks[0] == peaks[2]
    assert lowerings == ["near", "near"]


def test_a_new_budget_compiles_nothing(own_cache: Path, lowerings: list[str]) -> None:
    trained = perceptron()
    trained.step()
    assert lowerings == ["near"]
    peaks = set()
    several = budgets(trained)[:-1]
    for budget in [*several, None, *several]:
        trained.model.plan.set_budget(budget)
        for _ in range(STEPS_BEFORE + 2):
            trained.step()
        peaks.add(trained.model.plan.peak_bytes)
    assert len(peaks) > 2
    assert lowerings in (["near"], ["near", "far"])  # each partition once, at whichever budget it was first asked for


class Homogeneous(nn.Module):
    """Its loss is a linear function of each weight, so it is the product of the weight and the weight's gradient, but only if
    backward sees the masks and the signs that forward saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = functional.dropout(functional.leaky_relu(layer(x), 0.3), 0.5)
        return x.mean()


def test_dropout_that_is_computed_again_has_the_masks_of_the_first_run() -> None:
    torch.manual_seed(0)
    trained = Trained(reprise.compile(Homogeneous().to(DEVICE), engine="fused", planning_seconds=1), batch(512, 32))
    for partition in ("near", "far"):
        trained.model.plan.set_partition(partition)
        trained.model.plan.set_budget(budgets(trained)[-1] + 4096)
        losses = []
        for _ in range(3):
            trained.model.zero_grad()
            loss = trained.model(trained.x)
            loss.backward()
            losses.append(loss.item())
            for weight in trained.model.parameters():
                torch.testing.assert_close((weight * weight.grad).sum(), loss, rtol=1e-4, atol=1e-7)
        assert trained.model.plan.recompute_ns > 0
        assert len(set(losses)) == 3


def accumulated(trained: Trained) -> dict[str, Tensor]:
    trained.model.zero_grad()
    for seed in range(3):
        trained.model(batch(256, seed=seed)).backward()
    gradients = {name: p.grad.clone() for name, p in trained.model.named_parameters()}
    trained.model.zero_grad()
    return gradients


def test_gradients_of_micro_batches_are_added_inside_the_budget() -> None:
    trained = perceptron()
    plan = trained.model.plan
    plan.set_partition("near")
    smallest = budgets(trained)[-1]
    plan.set_budget(None)
    expected = accumulated(trained)
    size = sum(p.nbytes for p in trained.model.parameters())
    plan.set_budget(smallest + 2 * size + trained.x.nbytes)  # gradients that wait, those that the test keeps, and another batch
    accumulated(trained)
    assert same(accumulated(trained), expected)
    assert plan.recompute_ns > 0 and plan.measured_peak_bytes <= plan.peak_bytes <= plan.budget_bytes


def test_a_saved_plan_runs_again(tmp_path: Path) -> None:
    saved = recomputing()
    saved.model.plan.save(tmp_path / "it.plan.json")
    other = perceptron()
    expected = other.step()
    assert other.model.plan.recompute_ns == 0
    other.model.plan.load(tmp_path / "it.plan.json")
    for _ in range(STEPS_BEFORE + 2):
        assert same(other.step(), expected)
    assert other.model.plan.actions == saved.model.plan.actions and other.model.plan.partition == "near"


def test_reports_and_explanations_speak_of_modules(tmp_path: Path) -> None:
    model = recomputing().model
    explanation = reprise.explain(model)
    assert {row.name for row in explanation.modules} <= {name for name, _ in model.named_modules()}
    assert sum(row.recompute_ns for row in explanation.modules) == model.plan.recompute_ns
    assert "inner.layers" in str(explanation)
    page = model.plan.report(tmp_path / "it.html", curve_seconds=0.5).read_text()
    assert "inner.layers" in page and "reprise::launch" not in page


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_verify_prints_errors_beside_eagers(dtype: torch.dtype | None) -> None:
    torch.manual_seed(0)
    model = WithLoss(Perceptron()).to(DEVICE)
    with torch.autocast(DEVICE.type, dtype or torch.bfloat16, enabled=dtype is not None):
        plain = reprise.verify(model, batch(256), engine="fused", repeats=1)
        found = reprise.verify(model, batch(256), plain.planned_peak_bytes - 4096, engine="fused", repeats=1)
    assert found.ok and found.same and found.planned_peak_bytes < plain.planned_peak_bytes
    eager, fused = (max(pair[which] for pair in found.errors.values()) for which in (0, 1))
    least = 1e-7 if dtype is None else 1e-4  # rounding to bf16 leaves eight bits
    assert least < eager < 1e4 * least and least < fused <= 2 * eager + found.tolerance
    row = next(line for line in str(found).splitlines() if line.startswith("error to fp64"))
    assert all(len(number) == 7 and float(number) > 0 for number in row.split()[3:5])
    assert not found.unrepeatable and "any order" not in str(found)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="tensors beside the step lie in blocks of 512 bytes")
def test_without_a_budget_a_step_takes_no_more_than_with_torch_compile() -> None:
    torch.manual_seed(0)
    model, x = WithLoss(two_blocks()), batch(8 * 32).view(8, 32, 16)
    compiled, fused = torch.compile(copy.deepcopy(model)), reprise.compile(copy.deepcopy(model), engine="fused")
    peaks = {}
    for kind, step in (("compile", Trained(compiled, x)), ("fused", Trained(fused, x))):
        for _ in range(2):
            step.model.zero_grad()
            gc.collect()
            memory.reset_peak(DEVICE)
            before = _torch.allocated_bytes(DEVICE)
            step.model(step.x).backward()
            peaks[kind] = memory.peak_bytes(DEVICE) - before
    assert peaks["fused"] <= peaks["compile"]
    graph = fused.plan.graph
    launched = {op for op in range(graph.num_ops) if graph.op_name(op).startswith("cpp_fused")}
    over = [value for op in launched for value in graph.outputs(op) if graph.overwrites(value) is not None]
    assert over  # and not because there was nothing to write over


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(100, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.words(x)))


class Rows(nn.Module):
    """Rows that are taken by an index, some of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(100, 16))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.weight).index_select(0, x.flatten())


@pytest.mark.parametrize("kind", [Words, Rows])
@pytest.mark.parametrize("threads", [2], indirect=True)  # one thread has an order
def test_verify_names_the_calls_that_add_in_any_order(kind: Callable[[], nn.Module], threads: int) -> None:
    torch.manual_seed(0)
    words = torch.randint(100, (64, 8), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    found = reprise.verify(WithLoss(kind()).to(DEVICE), words, engine="fused", repeats=1)
    assert len(found.unrepeatable) == 1 and found.ok
    assert f"1 calls add in any order: they run once, and may give other bits in every step: {found.unrepeatable[0]}" in (
        str(found))
    other = copy.deepcopy(found)
    other.different = ["gradient of inner.words.weight"]
    assert other.ok  # errors to fp64 are what counts there
    other.errors[next(iter(other.errors))] = (1e-7, 1e-2)
    assert not other.ok
