"""Runs the same training loop on two copies of one model, plain and planned, and compares them."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable
from typing import Any

import torch
from steps import bits_of
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

import reprise
from reprise.native import _torch

# The same tests can be run on another device, and as CUDA graphs from the first step on:
#   REPRISE_TEST_DEVICE=cuda [REPRISE_TEST_GRAPHS=1] pytest tests/torch/test_loops.py
DEVICE = torch.device(os.environ.get("REPRISE_TEST_DEVICE", "cpu"))
if DEVICE.type == "cuda":
    DEVICE = torch.device("cuda", torch.cuda.current_device())
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
GRAPHS = DEVICE.type == "cuda" and "REPRISE_TEST_GRAPHS" in os.environ
ROOMY = "10MB" if DEVICE.type == "cpu" else "2GiB"  # On CUDA, libraries take memory of their own.
Bits = dict[str, Any]
Loop = Callable[[nn.Module], Any]


class Mlp(nn.Module):
    """A model with a few layers, so that there is something to recompute."""

    def __init__(self, width: int = 16, layers: int = 4, outputs: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x)).sigmoid()
        # The factor keeps the gradient of a plain sum out of the matrix product: it is expanded in eager and dense in a
        # captured step, and CUDA uses different kernels for the two.
        return self.head(x) * 2


def batch(rows: int = 32, width: int = 16, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def smallest_budget(model: nn.Module, loop: Loop) -> int:
    planned, _ = run_in_smallest_budget(model, loop)
    return planned.plan.settings.options.budget_bytes


def run_in_smallest_budget(model: nn.Module, loop: Loop, again: bool = True, **options: Any) -> tuple[nn.Module, Bits]:
    """A compiled copy of the model after the loop, in the smallest budget in which the loop runs. It is found by asking for one
    byte, and then for what the errors name, because a loop may need more later.

    again: whether the loop may run again on a model whose first step was refused; not if it adds hooks.
    """
    gc.collect()
    trial, budget, before = reprise.compile(copy.deepcopy(model).to(DEVICE), 1, **options), 1, state_of(model)
    for _ in range(8):
        try:
            return trial, _run(trial, loop)
        except reprise.InfeasibleBudget as error:
            assert error.smallest_budget_bytes > budget
            # On CUDA, every number that a loop remembers takes a block of memory.
            budget = error.smallest_budget_bytes + (0 if DEVICE.type == "cpu" else 16384)
        gc.collect()
        if again and state_of(trial) == before:
            trial.plan.set_budget(budget)  # The first step was refused, so what was captured can be used.
        else:
            trial = reprise.compile(copy.deepcopy(model).to(DEVICE), budget, **options)
    raise AssertionError(f"{budget} bytes, named as the smallest budget, are not enough")


def assert_same(model: nn.Module, loop: Loop, budget: int | str | None = "smallest", again: bool = True,
                **options: Any) -> nn.Module:
    """Checks that `loop` gives the same bits on a plain copy and on one that is compiled for the smallest budget: what it
    returns, parameters, buffers, gradients and the generator. Returns the compiled model."""
    plain = _run(copy.deepcopy(model).to(DEVICE), loop)
    if DEVICE.type == "cuda" and (GRAPHS or isinstance(budget, str)) and budget != "smallest":
        budget = ROOMY
    if GRAPHS:
        budget, options = ROOMY, {**options, "cuda_graphs": True}
    if budget == "smallest":
        planned_model, planned = run_in_smallest_budget(model, loop, again, **options)
    else:
        gc.collect()  # On CUDA, everything that is allocated counts.
        planned_model = reprise.compile(copy.deepcopy(model).to(DEVICE), budget, **options)
        if GRAPHS:
            planned_model.plan.settings.options.steps_before_cuda_graphs = 0
        planned = _run(planned_model, loop)
    assert plain.keys() == planned.keys()
    different = [name for name in plain if plain[name] != planned[name]]
    assert not different, different
    if planned_model.plan.ready and planned_model.plan.budget_bytes is not None:
        assert planned_model.plan.peak_bytes <= planned_model.plan.budget_bytes
        assert (planned_model.plan.measured_peak_bytes or 0) <= planned_model.plan.budget_bytes
    return planned_model


def _run(model: nn.Module, loop: Loop) -> Bits:
    torch.manual_seed(123)
    returned, structure = tree_flatten(loop(model))
    bits: Bits = {f"result {i}": snapshot(x) for i, x in enumerate(returned)}
    bits["structure"] = str(structure)
    bits["generator"] = bits_of(torch.get_rng_state())
    if DEVICE.type == "cuda":
        bits["generator of the device"] = bits_of(torch.cuda.get_rng_state(DEVICE))
    return bits | state_of(model)


def state_of(model: nn.Module) -> Bits:
    bits = {f"state {name}": bits_of(t) for name, t in model.state_dict().items()}
    return bits | {f"gradient {name}": bits_of(p.grad) for name, p in model.named_parameters()}


def snapshot(x: Any) -> Any:
    return bits_of(x) if isinstance(x, Tensor) else x


def allocated() -> int:
    return _torch.allocated_bytes(DEVICE)
