"""Tests what libraries around a training loop do to a model and its optimizer."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frameworks_cases as cases
import lightning
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from several_processes import Results, results_of
from torch import nn
from training import Mlp, assert_same, batch

import reprise

pytestmark = pytest.mark.usefixtures("one_thread")


def step(model: nn.Module, optimizer: Any) -> torch.Tensor:
    loss = model(batch()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def accelerator(**options: Any) -> Accelerator:
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    return Accelerator(cpu=True, **options)


WRAPPERS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], Any]] = {
    "accelerate": lambda model, optimizer: accelerator().prepare(optimizer),
    "lightning": lambda model, optimizer: lightning.pytorch.core.optimizer.LightningOptimizer(optimizer),
    "fabric": lambda model, optimizer: lightning.Fabric(accelerator="cpu").setup(model, optimizer)[1],
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_an_optimizer_that_a_library_wraps_can_be_named(wrap: Callable[..., Any]) -> None:
    """An object of the wrapper's class cannot be made anew, and the hooks of the wrapper are not the ones that run."""
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters())
    reprise.compile(model, "10MB", optimizer=wrap(model, optimizer))
    for _ in range(2):
        step(model, optimizer)
    named = reprise.explain(model)
    reprise.compile(model, "10MB", optimizer=optimizer)
    step(model, optimizer)
    assert named.optimizer_peak_bytes is not None
    assert named.outside_bytes == reprise.explain(model).outside_bytes


def test_an_optimizer_that_keeps_more_than_the_one_inside_is_not_unwrapped() -> None:
    class Slow(torch.optim.SGD):
        optimizer: torch.optim.Optimizer

    model = Mlp()
    slow = Slow(model.parameters(), lr=0.1)
    slow.optimizer = torch.optim.Adam(model.parameters())
    reprise.compile(model, "10MB", optimizer=slow)
    assert model.plan.settings.stepper is slow


def test_precision_that_accelerate_puts_around_forward_may_come_and_go() -> None:
    def loop(model: nn.Module) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = [step(model, optimizer)]
        around = accelerator(mixed_precision="bf16")
        prepared, _ = around.prepare(model, optimizer)
        losses += [step(prepared, optimizer) for _ in range(2)]
        return [*losses, step(around.unwrap_model(prepared, keep_fp32_wrapper=False), optimizer)]

    model = assert_same(Mlp(), loop, "10MB")
    assert len(model.plan.sessions) == 3


def test_the_state_of_an_optimizer_that_nobody_named_counts_once_it_is_there() -> None:
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters())
    model(batch()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    outside = []
    for options in ({}, {"optimizer": optimizer}):
        reprise.compile(model, "10MB", **options)
        model(batch()).sum()
        outside.append(model.plan.outside_bytes)
    state = sum(tensor.nbytes for kept in optimizer.state.values() for tensor in kept.values())
    assert outside[0] == outside[1] >= state


def test_a_saved_model_can_be_loaded_without_reprise(tmp_path: Path) -> None:
    model = reprise.compile(nn.Sequential(nn.Linear(16, 4)), "10MB")
    model(batch()).sum().backward()
    torch.save(model, tmp_path / "model.pt")
    code = "import sys, torch; sys.modules['reprise'] = None; torch.load(sys.argv[1], weights_only=False)(torch.ones(2, 16))"
    subprocess.run([sys.executable, "-c", code, tmp_path / "model.pt"], check=True)


def test_torch_compile_around_a_model_runs_its_plan() -> None:
    model = reprise.compile(Mlp(), "10MB")
    torch.compile(model, backend="eager")(batch()).sum().backward()
    assert model.plan.ready


class Around(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Mlp()

    def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
        return self.net(x).sum()


WAYS_AROUND: dict[str, Callable[[Around], torch.Tensor]] = {
    "forward": lambda model: model.net.forward(batch()).sum(),
    "training_step": lambda model: model.training_step(batch(), 0),
    "torch.compile": lambda model: torch.compile(model.training_step, backend="eager")(batch(), 0)}


@pytest.mark.parametrize("way", WAYS_AROUND)
def test_training_around_the_plan_is_told_once(way: str, caplog: pytest.LogCaptureFixture) -> None:
    model = Around()
    compiled = reprise.compile(model if way == "training_step" else model.net, "10MB")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING, logger="reprise"):
        optimizer.step()
        assert not caplog.records
        for _ in range(2):
            WAYS_AROUND[way](model).backward()
            optimizer.step()
    assert not compiled.plan.ready
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"{type(compiled).__name__} is trained outside of its budget"]


def test_training_by_the_plan_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    model = reprise.compile(Mlp(), "10MB")
    with caplog.at_level(logging.WARNING, logger="reprise"):
        step(model, torch.optim.SGD(model.parameters(), lr=0.1))
        reprise.restore(model)
        step(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert not caplog.records


@pytest.fixture(scope="module")
def in_two_processes(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(cases.run, tmp_path_factory.mktemp("ranks"), cases.free_port())


@pytest.mark.parametrize("way", cases.WAYS)
def test_sharded_models_that_libraries_hand_over_train_inside_the_budget(in_two_processes: Results, way: str) -> None:
    for result in in_two_processes:
        found = result[way]
        assert all(found["same"]) and found["regions"] == 4
        assert found["recompute_ns"] > 0 and found["measured"] <= found["budget"]
