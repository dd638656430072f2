"""Forecasts count on slices as sessions do."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import reprise
import reprise.show.preflight
from reprise import _core, planning
from reprise.api.curve import _forms
from reprise.api.preflight import question

RESNET50 = Path(__file__).parents[2] / "data/steps/resnet50_96.cuda.graph.json"
WORDS = 4001


class Language(nn.Module):
    """Words in, the loss out; few layers and many words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        self.layer = nn.Linear(32, 32)
        self.head = nn.Linear(32, WORDS, bias=False)

    def forward(self, words: Tensor, labels: Tensor) -> Tensor:
        x = functional.gelu(self.layer(self.embed(words)))
        return functional.cross_entropy(self.head(x).view(-1, WORDS), labels.view(-1))


def batch(size: int = 4) -> tuple[Tensor, Tensor]:
    words = torch.randint(0, WORDS, (size, 65), generator=torch.Generator().manual_seed(1))
    return words[:, :-1].clone(), words[:, 1:].clone()


def smallest(model: nn.Module, size: int = 4, **settings: object) -> int:
    """As training itself says."""
    reprise.compile(model, budget=1, planning_seconds=1, **settings)
    with pytest.raises(reprise.InfeasibleBudget) as refused:
        model(*batch(size))
    reprise.restore(model)
    return refused.value.smallest_budget_bytes


def trains(model: nn.Module, budget: int, size: int, **settings: object) -> int:
    """Trains steps inside a budget, and returns in how many slices."""
    reprise.compile(model, budget=budget, planning_seconds=1, **settings)
    for _ in range(2):
        model(*batch(size)).backward()
        model.zero_grad()
    assert model.plan.measured_peak_bytes <= budget
    slices = model.plan.slices
    reprise.restore(model)
    return slices


def ask(model: nn.Module, budget: int, size: int = 4, **options: object) -> reprise.show.preflight.Preflight:
    return reprise.preflight(model, batch(size), budget, planning_seconds=1, profile="measure",
                             **{"largest": False, **options})


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Language()


def test_a_budget_that_only_slices_keep_is_said_to_be_enough(model: nn.Module) -> None:
    whole, least = smallest(model, slices=False), smallest(model)
    budget = (whole + least) // 2
    found = ask(model, budget)
    assert found.fits and found.planned.slices > 1
    assert found.planned.peak_bytes <= budget
    assert f"in {found.planned.slices} slices" in str(found)
    assert trains(model, budget, 4) > 1
    without = ask(model, budget, slices=False)
    assert not without.fits
    assert abs(without.planned.peak_bytes - whole) <= whole // 200


def test_the_time_is_that_of_the_plan_after_a_full_search(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session begins with what a short search has found, and goes on searching beside its steps."""
    form = _core.parse_graph(RESNET50.read_text())
    peak = _core.solve(*form, planner="none").simulation.peak_bytes
    monkeypatch.setenv("REPRISE_WAITING_SECONDS", "0.05")
    found = [planning.find_in_forms(lambda key: form if key == planning.WHOLE else None, True, peak, peak // 2, "auto", 60,
                                    in_full)
             for in_full in (False, True)]
    soon, in_full = (each.simulation for each in found)
    full = planning.find(*form, peak // 2, "auto", 60).simulation
    assert soon is not None and in_full is not None and full is not None
    assert in_full.time_ns == full.time_ns <= soon.time_ns


def test_a_curve_has_the_forms_of_both_kinds_that_training_tries() -> None:
    """Where something else bounds both kinds alike, exact slices do not stand for close ones."""
    graph, costs = _core.parse_graph(RESNET50.read_text())
    smaller = _core.Costs(costs.time_ns, costs.workspace_bytes, [size // 2 for size in costs.value_bytes])
    asked: Any = SimpleNamespace(form=lambda key, batch: (graph, costs if key == planning.WHOLE else smaller), batch=1,
                                 forms=SimpleNamespace(use="close"))
    assert [slices for slices, _ in _forms(asked)] == [1, 2, 2]


class WideLoss(nn.Module):
    """Rows in bf16 whose loss is in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 128, dtype=torch.bfloat16)
        self.head = nn.Linear(128, WORDS, bias=False, dtype=torch.bfloat16)

    def forward(self, words: Tensor) -> Tensor:
        return functional.cross_entropy(self.head(functional.gelu(self.embed(words))).float(), words)


def test_slices_become_more_while_less_lies_beside_their_ends() -> None:
    """In 8 slices, the largest call makes the gradient of the head's weight from that of the logits. But parts of the gradient of
    the logits are made in fp32, beside the whole of it that they are written to."""
    asked = question(WideLoss(), torch.randint(0, WORDS, (512,)), 0, device=None, optimizer=None, reserve=0, planner="auto",
                     planning_seconds=1, profile="roofline")
    asked.step()
    forms = dict(_forms(asked))
    assert list(forms) == [1, 2, 4, 8, 16]
    assert _core.most_of_one_op(*forms[8]) == _core.most_of_one_op(*forms[16])


def test_the_least_budget_is_that_of_a_session(model: nn.Module) -> None:
    least = smallest(model)
    found = ask(model, 1)
    assert not found.fits
    assert abs(found.planned.peak_bytes - least) <= least // 200
    close = ask(model, 1, slices="close")
    assert close.planned.peak_bytes < found.planned.peak_bytes - 4 * 64 * WORDS * 4 // 2


def test_enough_memory_means_no_slices(model: nn.Module) -> None:
    assert ask(model, 1 << 30).planned.slices == 1


def test_the_largest_batch_in_slices_trains_and_the_next_ones_do_not(model: nn.Module) -> None:
    budget = smallest(model, 8) * 21 // 20
    found = ask(model, budget, largest=True)
    without = ask(model, budget, largest=True, slices=False)
    assert found.largest_planned is not None and without.largest_planned is not None
    largest = found.largest_planned.batch
    assert largest > without.largest_planned.batch
    assert found.largest_planned.slices > 1
    assert trains(model, budget, largest) > 1
    assert smallest(model, largest + max(2, largest // 10)) > budget


def test_slices_that_were_not_compared_are_spoken_of(model: nn.Module) -> None:
    budget = (smallest(model, slices=False) + smallest(model)) // 2
    found = reprise.preflight(model, batch(), budget, planning_seconds=1, largest=False)
    assert found.planned.slices > 1
    assert "were not compared with whole calls" in str(found)
    elsewhere = reprise.preflight(model, batch(), budget, planning_seconds=1, largest=False, profile="roofline",
                                  device="cuda")
    assert elsewhere.planned.slices > 1


def test_a_curve_goes_on_in_slices(model: nn.Module) -> None:
    whole, least = smallest(model, slices=False), smallest(model)
    curve = reprise.curve(model, batch(), planning_seconds=6)
    without = reprise.curve(model, batch(), planning_seconds=1, slices=False)
    low = (whole + least) // 2
    assert without.at(low) is None
    point = curve.at(low)
    assert point is not None and point.slices > 1
    assert f"in {point.slices} slices" in str(curve)
    assert curve.points[-1].recompute_ns == 0  # in slices or not: those that stay in the cache may take less time
    peaks, times = [p.peak_bytes for p in curve], [p.time_ns for p in curve]
    assert peaks == sorted(set(peaks)) and times == sorted(set(times), reverse=True)
    assert curve.points[0].peak_bytes <= least * 201 // 200
    assert curve.floor_bytes is None or curve.floor_bytes <= curve.points[0].peak_bytes


def test_a_form_that_is_always_there_is_asked_for() -> None:
    with pytest.raises(ValueError, match="there is always the whole step"):
        planning.find_in_forms(lambda key: None, True, 0, 1 << 20, "auto", 1)


@pytest.mark.parametrize("call", [
    lambda model: reprise.preflight(model, batch(), 1, slices="often"),
    lambda model: reprise.curve(model, batch(), slices="often")])
def test_other_settings_are_refused(model: nn.Module, call: object) -> None:
    with pytest.raises(ValueError, match=r"slices='often': choose True, False or 'close'"):
        call(copy.deepcopy(model))
