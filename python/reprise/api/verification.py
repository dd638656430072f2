"""reprise.verify: checks that training is the same and stays inside the budget."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .. import _core
from ..native import _torch
from .arguments import call_arguments
from .compiled_model import compile, restore
from .model_plan import ModelPlan


@dataclass
class Verification:
    """The results of plain and of planned training, from the same state."""

    budget_bytes: int | None
    plain_peak_bytes: int
    planned_peak_bytes: int
    predicted_peak_bytes: int
    plain_seconds: float
    planned_seconds: float
    planner: str
    different: list[str] = field(default_factory=list)  # names of tensors that are not the same bit for bit

    @property
    def same(self) -> bool:
        return not self.different

    @property
    def inside(self) -> bool:
        return self.budget_bytes is None or self.planned_peak_bytes <= self.budget_bytes

    @property
    def ok(self) -> bool:
        return self.same and self.inside

    def __str__(self) -> str:
        budget = "none" if self.budget_bytes is None else _core.format_bytes(self.budget_bytes)
        rows = [
            ("", "plain", f"planned ({self.planner})"),
            ("peak", _core.format_bytes(self.plain_peak_bytes), _core.format_bytes(self.planned_peak_bytes)),
            ("predicted peak", "", _core.format_bytes(self.predicted_peak_bytes)),
            ("budget", "", budget + ("" if self.inside else "  EXCEEDED")),
            ("step", f"{1e3 * self.plain_seconds:.1f} ms", f"{1e3 * self.planned_seconds:.1f} ms"),
            ("bits", "", "the same" if self.same else f"{len(self.different)} tensors differ: "
             + ", ".join(self.different[:5])),
        ]
        return "\n".join(f"{name:<16}{plain:>14}   {planned}" for name, plain, planned in rows)


def verify(model: nn.Module, inputs: Any, budget: str | int | None = None, *,
           loss: Callable[[Any], Tensor] | None = None, repeats: int = 3, **options: Any) -> Verification:
    """Trains one step plain and one planned, from the same parameters, buffers and random state,
    and compares loss, gradients, buffers and the position of the random generators bit by bit.

    inputs: a tensor, a tuple of arguments, a dict of keyword arguments, or (args, kwargs).
    loss: a function of the model's output; by default its `.loss`, or the output if it is one number, or the
        sum of everything in it.
    options: those of reprise.compile.

    The model ends as it began. If reprise.compile had been applied to it, that is undone.
    """
    args, kwargs = call_arguments(inputs)
    restore(model)
    loss = loss or default_loss
    device = next(iter(model.parameters())).device
    with _unchanged(model):
        plain = _Runs(model, args, kwargs, loss, device)
        plain.run()
        plain.run()
        try:
            compile(model, budget, **options)
            result = _compare(model, plain, _Runs(model, args, kwargs, loss, device), repeats)
        finally:
            restore(model)
    return result


def _compare(model: nn.Module, plain: _Runs, planned: _Runs, repeats: int) -> Verification:
    planned.run()
    planned.run()
    for _ in range(repeats - 1):
        call = model._compiled_call_impl
        model._compiled_call_impl = None
        plain.run()
        model._compiled_call_impl = call
        planned.run()
    # A planned step reads the allocator's peak in parts and resets it after each part.
    plan: ModelPlan = model.__dict__["plan"]
    peak = max(planned.peak_bytes, plan.measured_peak_bytes or 0)
    return Verification(
        budget_bytes=plan.budget_bytes, plain_peak_bytes=plain.peak_bytes, planned_peak_bytes=peak,
        predicted_peak_bytes=plan.peak_bytes, plain_seconds=statistics.median(plain.seconds[1:]),
        planned_seconds=statistics.median(planned.seconds[1:]), planner=plan.planner,
        different=differences(plain.result, planned.result))


def default_loss(output: Any) -> Tensor:
    found: Tensor | None = getattr(output, "loss", None)
    if found is None and isinstance(output, Mapping):
        found = output.get("loss")
    if found is not None:
        return found
    if isinstance(output, Tensor) and output.numel() == 1:
        return output.sum()
    return torch.stack([t.float().sum() for t in tree_leaves(output)
                        if isinstance(t, Tensor) and t.requires_grad]).sum()


def differences(a: dict[str, Tensor | None], b: dict[str, Tensor | None]) -> list[str]:
    """Names of tensors that are not the same bit for bit."""
    return [name for name in sorted({*a, *b}) if not _same_bits(a.get(name), b.get(name))]


def _same_bits(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


class _Runs:
    """Runs steps of one kind, each from the state that the model had at the beginning."""

    def __init__(self, model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any],
                 loss: Callable[[Any], Tensor], device: torch.device) -> None:
        self.model, self.args, self.kwargs, self.loss, self.device = model, args, kwargs, loss, device
        self.seconds: list[float] = []
        self.peak_bytes = 0
        self.result: dict[str, Tensor | None] = {}

    def run(self) -> None:
        self.result = {}
        with _unchanged(self.model):
            self.model.zero_grad(set_to_none=True)
            there = _torch.storage_bytes([t for t in tree_leaves([*self.model.parameters(), *self.model.buffers(), self.args,
                                                                  self.kwargs]) if isinstance(t, Tensor)],
                                  self.device)
            _synchronize(self.device)
            _torch.reset_peak(self.device)
            entry = _torch.allocated_bytes(self.device)
            begin = time.perf_counter()
            output = self.model(*self.args, **self.kwargs)
            loss = self.loss(output)
            loss.backward()
            _synchronize(self.device)
            self.seconds.append(time.perf_counter() - begin)
            if self.device.type == "cpu":
                self.peak_bytes = there + _torch.peak_bytes(self.device) - entry
            else:
                self.peak_bytes = _torch.peak_bytes(self.device)
            self.result = self._take_result(loss)

    def _take_result(self, loss: Tensor) -> dict[str, Tensor | None]:
        result: dict[str, Tensor | None] = {"loss": loss.detach().cpu()}
        for name, parameter in self.model.named_parameters():
            result[f"gradient of {name}"] = None if parameter.grad is None else parameter.grad.cpu()
        for name, buffer in self.model.named_buffers():
            result[f"buffer {name}"] = buffer.detach().cpu().clone()
        result["random state"] = torch.get_rng_state()
        if self.device.type == "cuda":
            result["random state of the device"] = torch.cuda.get_rng_state(self.device)
        return result


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Puts parameters, buffers, gradients and random states back at the end."""
    tensors = [*model.parameters(), *model.buffers()]
    contents = [t.detach().cpu().clone() for t in tensors]
    gradients = [t.grad for t in tensors]
    cuda = [t.device for t in tensors if t.device.type == "cuda"]
    with torch.random.fork_rng(devices=list(dict.fromkeys(cuda))):
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, content, gradient in zip(tensors, contents, gradients, strict=True):
                    tensor.copy_(content)
                    tensor.grad = gradient


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
