"""reprise.online: a byte budget for code that is not captured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .. import _core, planning
from ..errors import RepriseError, Unsupported
from ..local_tensors import is_distributed
from ..native import _torch
from ..optimizer_state import optimizer_tensors
from ..show.report import CURVE_SECONDS, Facts, machine_facts, write_report
from ..show.snapshot import write_snapshot
from .arguments import byte_count

SMALLEST = "16KiB"
PLANNING_SECONDS = 0.5


class online:
    """Runs ordinary PyTorch code inside `budget` bytes, as it is, call by call.

        with reprise.online("6GiB", model, optimizer):
            for batch in batches:
                loss = model(batch)
                loss.backward()
                optimizer.step()

    Nothing is captured: masks, `.item()`, new shapes in every step, kept graphs and gradients of gradients are fine. When
    the allocator would pass the budget, memory is taken from under results, and before such a result is read it is
    computed again in place. The bits are those of the same code without it. Plans of `reprise.compile` recompute less.

    budget: the highest number of bytes that PyTorch's allocator for the device may have handed out: "6GiB", or a number.
    older: modules, optimizers and tensors. On the CPU, what is older than the first use of Reprise counts only if it is
        named here.
    device: where memory is bounded; None: where the first tensor of `older` lies that is on CUDA, or else PyTorch's
        default device.
    smallest: results that take less are never taken away.
    most_recomputation: in one step, recomputation may take so many times as long as the calls themselves; None: it
        may take any time. A step ends with a backward pass that does not keep its graph.
    planning_seconds: a step that needed memory taken away is planned before the next one, for at most so long, and
        steps that make the same calls follow the plan; 0: no step is planned.

    Raises BudgetExceeded where a call cannot be made inside the budget. One can be active at a time, for all threads.
    """

    def __init__(self, budget: str | int, *older: torch.nn.Module | torch.optim.Optimizer | Tensor,
                 device: torch.device | str | None = None, smallest: str | int = SMALLEST, most_recomputation: float | None = 8.0,
                 planning_seconds: float = PLANNING_SECONDS) -> None:
        self.budget_bytes = byte_count("budget", budget)
        self.smallest_bytes = byte_count("smallest", smallest)
        if self.budget_bytes <= 0:
            raise ValueError(f"budget={budget!r}: must be positive")
        if most_recomputation is not None and most_recomputation <= 0:
            raise ValueError(f"most_recomputation={most_recomputation}: must be positive, or None for any time")
        if planning_seconds < 0:
            raise ValueError(f"planning_seconds={planning_seconds}: must not be negative")
        self.most_recomputation = most_recomputation or 0.0
        self.planning_seconds = planning_seconds
        self.older = older
        self.device = None if device is None else torch.device(device)
        self._mode: _torch.Online | None = None
        self._summary: _torch.OnlineSummary | None = None
        self._step: tuple[object, object, object] | None = None  # when it ended

    def __enter__(self) -> online:
        if self._mode is not None:
            raise ValueError("this online mode is active already")
        _torch.install_meter()
        tensors = list(_tensors(self.older))
        if self.device is None:
            self.device = next((tensor.device for tensor in tensors if tensor.is_cuda), torch.get_default_device())
        self._mode = _torch.Online(self.budget_bytes, self.device, tensors, self.smallest_bytes,
                                   self.most_recomputation, self.planning_seconds)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Restores everything that the program holds; nothing is taken away any more."""
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.end()
            self._summary, self._step = mode.summary, mode.planned_step()

    def set_budget(self, budget: str | int) -> None:
        """Changes the budget at once."""
        self.budget_bytes = byte_count("budget", budget)
        if self._mode is not None:
            self._mode.set_budget(self.budget_bytes)

    @property
    def active(self) -> bool:
        return self._mode is not None

    @property
    def summary(self) -> _torch.OnlineSummary:
        """What was done so far: calls, evictions, repeated calls, times, peaks, and steps that followed a plan."""
        if self._mode is not None:
            return self._mode.summary
        if self._summary is None:
            raise ValueError("this online mode has not been active yet")
        return self._summary

    def report(self, path: str | Path, *, curve_seconds: float = CURVE_SECONDS) -> Path:
        """Writes the step that was planned or followed last as one HTML file, or as data if the name ends in .json, as
        model.plan.report does for a captured step.

        curve_seconds: how long to plan at all budgets, for time against memory; 0 leaves that part out.
        """
        graph, costs, plan = self._planned_step()
        points = planning.curve(graph, costs, planning.AUTO, curve_seconds).points if curve_seconds else []
        write_report(Path(path), graph, costs, plan, **self._facts(points))
        return Path(path)

    def trace(self, path: str | Path) -> Path:
        """Writes the same step for Perfetto and chrome://tracing."""
        graph, costs, plan = self._planned_step()
        Path(path).write_text(_core.trace_json(graph, costs, plan, **self._facts([])))
        return Path(path)

    def snapshot(self, path: str | Path) -> Path:
        """Writes the same step for PyTorch's memory viewer (pytorch.org/memory_viz)."""
        write_snapshot(Path(path), *self._planned_step())
        return Path(path)

    def _planned_step(self) -> tuple[_core.Graph, _core.Costs, _core.Plan]:
        found = self._step if self._mode is None else self._mode.planned_step()
        if found is None:
            raise RepriseError("no step has been planned. A step is planned after the first one for which memory had to be taken "
                               "away, unless planning_seconds is 0")
        graph, costs, plan = found
        return _core.Graph.from_capsule(graph), _core.Costs.from_capsule(costs), _core.Plan.from_capsule(plan)

    def _facts(self, curve: list[_core.Solution]) -> Facts:
        return {"planner": planning.AUTO, "budget_bytes": self.budget_bytes, "outside_bytes": 0, "measured": None,
                "curve": curve, "facts": machine_facts(self.device or torch.device("cpu"))}

    def __repr__(self) -> str:
        size = _core.format_bytes(self.budget_bytes)
        if self._mode is None and self._summary is None:
            return f"online({size})"
        return f"online({size}: {steps_line(self.summary)})"


def steps_line(summary: _torch.OnlineSummary) -> str:
    """How many steps followed a plan, in words."""
    def counted(number: int, name: str) -> str:
        return f"{number} {name}{'' if number == 1 else 's'}"

    return (f"{counted(summary.steps, 'step')}, {summary.followed_steps} of them followed a plan; "
            f"{counted(summary.scripts, 'script')}, {counted(summary.departures, 'departure')}")


_NOT_DISTRIBUTED = ("the online mode does not take models with distributed parameters (DTensor): each process would decide for "
                    "itself what to compute again, and the others would not take part")


def why_not(model: torch.nn.Module) -> str | None:
    """Why the online mode cannot run this model; None: it can."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(map(is_distributed, tensors)):
        return _NOT_DISTRIBUTED
    devices = {tensor.device for tensor in tensors if not tensor.is_cpu}
    if len(devices) > 1:
        return f"the online mode bounds the memory of one device, and the model lies on {', '.join(sorted(map(str, devices)))}"
    for device in devices:
        if device.type != "cuda":
            return f"the online mode works on the CPU and on CUDA, and the model lies on {device}"
        if not _torch.online_is_available(device):
            return f"the online mode works on {device} only where Reprise was built with CUDA's headers"
    return None


def _tensors(older: Iterable[Any]) -> Iterable[Tensor]:
    for each in older:
        if isinstance(each, torch.nn.Module):
            held = [*each.parameters(), *each.buffers()]
            if any(map(is_distributed, held)):
                raise Unsupported(_NOT_DISTRIBUTED)
        elif isinstance(each, torch.optim.Optimizer):
            held = optimizer_tensors(each)
        elif isinstance(each, Tensor):
            held = [each]
        else:
            raise TypeError(f"reprise.online takes modules, optimizers and tensors, not {type(each).__name__}")
        yield from held
        yield from (tensor.grad for tensor in held if tensor.is_leaf and tensor.grad is not None)
