"""Runs one training step and keeps everything about it that must be the same. It shares no code with
reprise.verify, which is tested with it."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from models.zoo import Case, Inputs
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import reprise
from reprise.local_tensors import local
from reprise.native import _torch

CPU = torch.device("cpu")


def model_of(case: Case, seed: int = 0, device: torch.device = CPU) -> nn.Module:
    torch.manual_seed(seed)
    return case.make_model().train().to(device)


def inputs_of(model: nn.Module, case: Case, batch: int | None = None, seed: int = 0) -> Inputs:
    """The inputs of a case, on the model's device."""
    device = next(model.parameters()).device
    return tree_map_only(Tensor, lambda t: t.to(device), case.make_inputs(batch, seed))


@dataclass
class Step:
    peak_bytes: int  # above what was allocated when the model was called
    bits: dict[str, tuple | None]


def run_step(model: nn.Module, case: Case, seed: int = 0, optimizer: Any = None,
             loss: Callable[[Any], Tensor] | None = None, batch: int | None = None) -> Step:
    """Runs forward, loss and backward. The caller holds the outputs until the end."""
    gc.collect()  # What is collected inside of the step would leave it a lower peak than was predicted.
    device = next(model.parameters()).device
    args, kwargs = inputs_of(model, case, batch, seed)
    torch.manual_seed(100 + seed)
    _torch.reset_peak(device)
    before = _torch.allocated_bytes(device)
    output = model(*args, **kwargs)
    total = (loss or case.loss)(output)
    total.backward()
    peak = _torch.peak_bytes(device) - before
    bits = {"loss": bits_of(total), "generator": bits_of(torch.get_rng_state())}
    if device.type == "cuda":
        bits["generator of the device"] = bits_of(torch.cuda.get_rng_state(device))
    bits |= {f"grad {n}": bits_of(p.grad) for n, p in model.named_parameters()}
    if optimizer is not None:
        optimizer.step()
    bits |= {f"state {n}": bits_of(t) for n, t in model.state_dict().items()}
    model.zero_grad()
    return Step(peak, bits)


def bits_of(tensor: Tensor | None) -> tuple | None:
    """The contents of a tensor as bytes of Python, so that what a test remembers does not count as memory of torch."""
    if tensor is None:
        return None
    tensor = local(tensor)
    flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return str(tensor.dtype), tuple(tensor.shape), flat.numpy().tobytes()


def different(a: Step, b: Step) -> list[str]:
    assert a.bits.keys() == b.bits.keys()
    return [name for name, x in a.bits.items() if x != b.bits[name]]


def distances(a: Step, b: Step) -> dict[str, float]:
    """For each kind (loss, grad, state, ...) the norm of all differences. It is infinite if what differs is not numbers."""
    sums: dict[str, float] = {name.partition(" ")[0]: 0.0 for name in a.bits}
    for name in different(a, b):
        x, y = _numbers(a.bits[name]), _numbers(b.bits[name])
        comparable = x is not None and y is not None and x.shape == y.shape
        sums[name.partition(" ")[0]] += float((x - y).square().sum()) if comparable else math.inf
    return {kind: math.sqrt(total) for kind, total in sums.items()}


def _numbers(bits: tuple | None) -> Tensor | None:
    if bits is None:
        return None
    dtype = getattr(torch, bits[0].removeprefix("torch."))
    if not dtype.is_floating_point:
        return None
    return torch.frombuffer(bytearray(bits[2]), dtype=dtype).view(bits[1]).double()


def compiled(model: nn.Module, budget: int | str | None = None, **options: Any) -> nn.Module:
    gc.collect()  # Outputs of earlier models, which are in reference cycles, would take memory beside the step.
    return reprise.compile(copy.deepcopy(model), budget, **options)


def smallest_budget(model: nn.Module, case: Case, **options: Any) -> int:
    return named_by_refusal(compiled(model, **options), case)


def named_by_refusal(planned: nn.Module, case: Case) -> int:
    """The smallest budget that a compiled model names if it gets one byte. It keeps that byte as its budget."""
    planned.plan.set_budget(1)
    args, kwargs = inputs_of(planned, case)
    try:
        planned(*args, **kwargs)
    except reprise.InfeasibleBudget as error:
        return error.smallest_budget_bytes
    raise AssertionError("a budget of one byte was accepted")
