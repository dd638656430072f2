"""Tests the capture of a step as a function: what it returns, and that it changes nothing else."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from training import Mlp, batch

import reprise
from reprise.native import _torch
from reprise.trace.step_capture import TracedStep, capture_step


def captured(model: torch.nn.Module, **options: Any) -> TracedStep:
    return capture_step(model, (batch(),), {}, "Mlp", **options)


def text_of(step: TracedStep) -> str:
    inputs = range(len(step.joint.primals))
    return _torch.format_program(step.captured.program, [], list(inputs), [-1 for _ in inputs])


class Remembers(Mlp):
    """A model whose code changes the model itself when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.norm = torch.nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen = self.norm(torch.nn.functional.dropout(x))
        return super().forward(self.seen)


def test_capture_runs_nothing_of_the_model() -> None:
    model = Remembers()
    before, generator = dict(vars(model)), torch.get_rng_state()
    mean = model.norm.running_mean.clone()
    assert captured(model).captured.program.num_ops > 10
    assert vars(model) == before and torch.equal(generator, torch.get_rng_state())
    assert torch.equal(mean, model.norm.running_mean)


def test_results_lie_as_the_device_lays_them() -> None:
    """This is as on CUDA, where libraries lay results out in their own way. The model is not traced again for it."""
    right = captured(Mlp())
    right.measure()
    key = next(key for key in right.captured.keys.values() if key.startswith("aten.tanh.default"))
    rows, columns = 32, 16
    assert f"({rows}, {columns})" in key
    wrong = captured(Mlp(), layouts={key: [("float32", [rows, columns], [1, rows], 0, 4 * rows * columns, "cpu")]})
    joint = wrong.joint
    assert text_of(wrong) != text_of(right)
    wrong.measure()
    assert text_of(wrong) == text_of(right) and wrong.joint is joint


def test_threads_capture_one_after_the_other() -> None:
    alone, texts = text_of(captured(Mlp())), []
    threads = [threading.Thread(target=lambda: texts.append(text_of(captured(Mlp())))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [alone, alone]


def test_modes_of_the_caller_stay() -> None:
    with torch.device("cpu"), FakeTensorMode() as fake:
        modes = torch.overrides._get_current_function_mode_stack()
        assert captured(Mlp()).captured.program.num_ops > 10
        assert torch.overrides._get_current_function_mode_stack() == modes != []
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is fake


def test_a_model_without_gradients_is_refused() -> None:
    with pytest.raises(reprise.RepriseError, match="Mlp cannot be trained: nothing that it returns requires"):
        captured(Mlp().requires_grad_(False))
