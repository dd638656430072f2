"""The online mode follows the plan of a step that comes again: bits, budget, departures, counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from online_loops import (
    LOOPS,
    Breaks,
    Loop,
    ResNet,
    allocated,
    bits_of,
    image_loss,
    random_program,
    train_inside_budgets,
)
from torch import Tensor, nn
from training import DEVICE

import reprise
from reprise import _core
from reprise.native import _torch

PROGRAMS = int(os.environ.get("REPRISE_ONLINE_PROGRAMS", "600")) // 10
SECONDS = 0.05  # for planning

pytestmark = [pytest.mark.usefixtures("one_thread", "on_device"),
              pytest.mark.skipif(not _torch.online_is_available(DEVICE), reason="this build cannot do it on the device")]
_torch.install_meter()  # It counts from here on.


# Steps of some of these loops never come again.
NEVER_SAME = {"graph breaks", "two losses", "new tree"}


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_loops_that_follow_plans_have_the_bits_of_plain_training(loop: Loop) -> None:
    def look(mode: reprise.online) -> None:
        assert mode.summary.scripts > 0
        if loop.name not in NEVER_SAME:
            assert mode.summary.followed_steps >= 1

    train_inside_budgets(loop, look, steps=8, most=2, planning_seconds=SECONDS)


def test_random_programs_that_come_again_have_eagers_bits() -> None:
    followed = 0
    for seed in range(PROGRAMS):
        before = _torch.allocated_bytes(DEVICE)
        _torch.reset_peak(DEVICE)
        expected = random_program(seed)
        budget = before + int((0.9, 0.8)[seed % 2] * (_torch.peak_bytes(DEVICE) - before))
        try:
            with reprise.online(budget, smallest=512, most_recomputation=None, planning_seconds=0.02) as mode:
                for _ in range(4):
                    bits = random_program(seed)
                    different = [name for name in expected if expected[name] != bits[name]]
                    assert different == [], f"program {seed}"
                    del bits
                assert _torch.peak_bytes(DEVICE) <= budget
        except reprise.BudgetExceeded:
            continue
        followed += mode.summary.followed_steps
        assert _torch.allocated_bytes(DEVICE) <= before or allocated() <= before, f"program {seed}"
    assert followed > PROGRAMS


def budget_of(model: nn.Module, step: int, share: float) -> int:
    """A share of what a plain step takes, above what is there."""
    image_loss(model, step).backward()
    model.zero_grad()
    before = allocated()
    _torch.reset_peak(DEVICE)
    image_loss(model, step).backward()
    model.zero_grad()
    return before + int(share * (_torch.peak_bytes(DEVICE) - before))


def test_a_step_that_comes_again_is_followed_without_an_unplanned_eviction() -> None:
    model = ResNet()
    budget = budget_of(model, 0, 0.5)
    with reprise.online(budget, smallest=4096, planning_seconds=SECONDS) as mode:
        repeated = []
        for _ in range(5):
            before = mode.summary.repeated_calls
            image_loss(model, 0).backward()
            model.zero_grad()
            repeated.append(mode.summary.repeated_calls - before)
        summary = mode.summary
    assert (summary.steps, summary.followed_steps, summary.departures, summary.scripts) == (5, 4, 0, 1)
    assert summary.unplanned_evictions == 0
    assert 0 < summary.planning_seconds < 60
    assert repeated[1] > 0
    assert len(set(repeated[2:])) == 1  # After the second step it is planned again, with the times of two steps.
    assert repr(mode) == (f"online({_core.format_bytes(budget)}: 5 steps, 4 of them followed a plan; "
                          "1 script, 0 departures)")


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = (nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())))
                                 for _ in range(2))
        self.experts = nn.ModuleList([nn.GELU(), nn.Sequential(nn.Linear(64, 64), nn.Softplus())])

    def forward(self, x: Tensor, expert: int) -> Tensor:
        return self.last(self.experts[expert](self.first(x)))


def bytes_of(tensor: Tensor) -> object:
    """On the CPU without a call, which would belong to the next step."""
    return tensor.numpy().tobytes() if tensor.is_cpu else bits_of(tensor)


def expert_steps(model: Experts, experts: list[int]) -> list[tuple[object, ...]]:
    bits = []
    for step, expert in enumerate(experts):
        torch.manual_seed(step)
        loss = model(torch.randn(256, 64), expert).pow(2).mean()
        loss.backward()
        bits.append(tuple(bytes_of(t) for t in (loss.detach(), *(p.grad for p in model.parameters())) if t is not None))
        model.zero_grad()
    return bits


def test_two_experts_get_two_scripts() -> None:
    torch.manual_seed(0)
    model = Experts()
    experts = [0, 1] * 5
    expected = expert_steps(model, experts)
    before = allocated()
    _torch.reset_peak(DEVICE)
    expert_steps(model, [0])
    budget = before + (_torch.peak_bytes(DEVICE) - before) * 6 // 10
    with reprise.online(budget, smallest=4096, planning_seconds=SECONDS) as mode:
        _torch.reset_peak(DEVICE)
        assert expert_steps(model, experts) == expected
        assert _torch.peak_bytes(DEVICE) <= budget
    if DEVICE.type == "cpu":
        assert mode.summary.scripts == 2
        assert mode.summary.departures == 1
        assert mode.summary.followed_steps == 8


def layers_of_tanh() -> tuple[nn.Module, Tensor, int]:
    """A model that has gradients, its input, and the bytes that a step adds to them for a time."""
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.Tanh())))
    x = torch.randn(512, 256)
    model(x).sum().backward()
    before = allocated()
    _torch.reset_peak(DEVICE)
    model(x).sum().backward()
    return model, x, _torch.peak_bytes(DEVICE) - before


def test_a_compiled_model_says_what_it_follows(tmp_path: Path) -> None:
    model, x, step_bytes = layers_of_tanh()
    reprise.compile(model, allocated() + step_bytes * 7 // 10, capture="online")
    try:
        for _ in range(4):
            model(x).sum().backward()
        assert model.plan.online.summary.followed_steps >= 2
        assert "followed a plan" in repr(model.plan)
        check_pictures(model.plan, tmp_path)
    finally:
        reprise.restore(model)


def check_pictures(source: Any, folder: Path) -> None:
    """What a mode or a model's plan shows of the step that was followed."""
    data = json.loads(source.report(folder / "step.json", curve_seconds=0.1).read_text())
    assert data["planned"]["peak_bytes"] <= data["budget_bytes"] < data["plain"]["peak_bytes"]
    assert sum(data["planned_runs"]["again"]) > 0
    assert "aten::tanh" in data["kinds"]
    assert len(data["curve"]["peak_bytes"]) > 1
    assert "<html" in source.report(folder / "step.html", curve_seconds=0).read_text()
    events = json.loads(source.trace(folder / "step.trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == len(data["planned_runs"]["op"])
    assert source.snapshot(folder / "step.pickle").stat().st_size > 0


def test_a_step_that_is_followed_can_be_looked_at_also_after_the_end(tmp_path: Path) -> None:
    model, x, step_bytes = layers_of_tanh()
    with reprise.online(allocated() + step_bytes * 7 // 10, smallest=4096, planning_seconds=0.3) as mode:
        with pytest.raises(reprise.RepriseError, match="no step has been planned"):
            mode.report(tmp_path / "early.html")
        assert not (tmp_path / "early.html").exists()
        for _ in range(4):
            model(x).sum().backward()
        check_pictures(mode, tmp_path)
    check_pictures(mode, tmp_path)


def test_planning_can_be_turned_off() -> None:
    model = Breaks()
    with reprise.online(budget_of_breaks(model, 0.6), smallest=4096, planning_seconds=0) as mode:
        for _ in range(3):
            model(torch.ones(1024, 64)).pow(2).mean().backward()
    assert (mode.summary.scripts, mode.summary.planning_seconds) == (0, 0)
    with pytest.raises(ValueError, match="negative"):
        reprise.online("1GiB", planning_seconds=-1)


def budget_of_breaks(model: nn.Module, share: float) -> int:
    before = allocated()
    _torch.reset_peak(DEVICE)
    model(torch.ones(1024, 64)).pow(2).mean().backward()
    return before + int(share * (_torch.peak_bytes(DEVICE) - before))


def test_forty_steps_leave_nothing_behind() -> None:
    torch.manual_seed(0)
    model = ResNet()
    optimizer = torch.optim.AdamW(model.parameters())
    with reprise.online(budget_of(model, 0, 0.6) + (1 << 16), smallest=4096, planning_seconds=SECONDS) as mode:
        for step in range(43):
            optimizer.zero_grad()
            image_loss(model, 0).backward()
            optimizer.step()
            if step == 2:
                before = allocated()
        assert allocated() == before
        assert mode.summary.followed_steps >= 35
