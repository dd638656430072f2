"""What the user asked for, checked."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from .. import planning, switches
from ..errors import Unsupported
from ..local_tensors import local_tensors
from ..native import _torch
from ..optimizer_state import optimizer_tensors, unnamed_tensors, without_wrappers
from ..progress import Preparation
from ..trace.gathers import accumulations
from ..trace.joint_graph import EAGER, check_engine
from ..trace.unreduced import Accumulation
from .arguments import byte_count
from .data_parallel import DataParallel
from .tensor_parallel import TensorParallel

PROFILES = ("measure", "roofline")
CUDA_GRAPHS = ("auto", True, False)
ARENA = ("auto", True, False)
CLOSE = "close"
WITH_DISTRIBUTED = "with distributed parameters (DTensor)"
SLICES = (True, False, CLOSE)


def check_slices(use: bool | str) -> None:
    if use not in SLICES:
        raise ValueError(f"slices={use!r}: choose True, False or 'close'")


class Settings:
    """The settings of a model's steps. The runtime reads `options`; a change takes effect at the next step."""

    def __init__(self, *, budget_bytes: int | None = None, reserve_bytes: int = 0, host_budget_bytes: int = 0,
                 park_optimizer: bool = False, planner: str = planning.AUTO, planning_seconds: float = 10.0,
                 waiting_seconds: float | None = None, profile: str = "measure", cuda_graphs: bool | str = "auto",
                 arena: bool | str = False, slices: bool | str = True, engine: str = EAGER, model: torch.nn.Module | None = None,
                 optimizer: torch.optim.Optimizer | None = None) -> None:
        planning.check_planner(planner)
        if profile not in PROFILES:
            raise ValueError(f"profile={profile!r}: choose {' or '.join(map(repr, PROFILES))}")
        check_engine(engine)
        if park_optimizer and (optimizer is None or host_budget_bytes == 0):
            raise ValueError("park_optimizer=True needs optimizer= and host_budget=")
        if planning_seconds <= 0:
            raise ValueError(f"planning_seconds={planning_seconds}: must be positive")
        if waiting_seconds is not None and waiting_seconds < 0:
            raise ValueError(f"waiting_seconds={waiting_seconds}: must not be negative")
        self.options = _torch.Options()
        self.options.budget_bytes, self.options.reserve_bytes = budget_bytes, reserve_bytes
        self.options.host_budget_bytes, self.options.park_optimizer = host_budget_bytes, park_optimizer
        self.options.planner, self.options.planning_seconds = planner, planning_seconds
        waiting = switches.waiting_seconds() if waiting_seconds is None else waiting_seconds
        if waiting is not None:
            self.options.waiting_seconds = waiting
        self.options.measure = profile == "measure"
        self.together: TensorParallel | None = None  # the processes that have parts of the model's parameters
        self.accumulations: list[Accumulation] = [] if model is None else accumulations(model)
        self.engine = engine
        self.partition: str | None = None  # of the fused engine's steps; None: whichever is faster
        self.set_cuda_graphs(cuda_graphs)
        self.set_arena(arena)
        self.set_slices(slices)
        # Compiled code may outlive the model and the optimizer.
        self.model = None if model is None else weakref.ref(model)
        self.optimizer = None if optimizer is None else weakref.ref(without_wrappers(optimizer))
        self.optimizer_peak_bytes: int | None = None  # at its latest step
        self.preparation = Preparation()
        self._unnamed: list[weakref.ref[Tensor]] = []
        self.parallel: DataParallel | None = None  # around the model, in the call that is going on or was the latest

    def set_cuda_graphs(self, use: bool | str) -> None:
        if use not in CUDA_GRAPHS:
            raise ValueError(f"cuda_graphs={use!r}: choose 'auto', True or False")
        self._check_distributed("cuda_graphs", use)
        self.options.cuda_graphs = use

    def set_arena(self, use: bool | str) -> None:
        if use not in ARENA:
            raise ValueError(f"arena={use!r}: choose 'auto', True or False")
        self._check_distributed("arena", use)
        self.options.arena = use

    def set_slices(self, use: bool | str) -> None:
        check_slices(use)
        self._check_distributed("slices", use)
        self.options.slices = use

    def set_host_budget(self, size: int) -> None:
        self._check_distributed("host_budget", size)
        self.options.host_budget_bytes = size

    def _check_distributed(self, option: str, use: object) -> None:
        """What all processes would have to agree on."""
        if self.together is not None and use:
            raise Unsupported(f"{option}={use!r} is not supported {WITH_DISTRIBUTED}: leave it out")

    @property
    def owner(self) -> torch.nn.Module | None:
        return self.model() if self.model is not None else None

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        return "model" if self.owner is None else type(self.owner).__name__

    @property
    def stepper(self) -> torch.optim.Optimizer | None:
        return self.optimizer() if self.optimizer is not None else None

    def tensors(self) -> list[Tensor]:
        """All tensors that the model and its optimizers hold."""
        model = self.owner
        self._unnamed = [] if model is None else [weakref.ref(tensor) for tensor in unnamed_tensors(model)]
        return self.tensors_again()

    def tensors_again(self) -> list[Tensor]:
        """The same without looking for optimizers that nobody named, which takes long: those found last are taken."""
        model, optimizer = self.owner, self.stepper
        of_model = [] if model is None else local_tensors([*model.parameters(), *model.buffers()])
        unnamed = [tensor for reference in self._unnamed if (tensor := reference()) is not None]
        waiting = [tensor for accumulation in self.accumulations for tensor in accumulation.tensors]  # and their gradients
        return [*of_model, *waiting, *unnamed, *([] if optimizer is None else optimizer_tensors(optimizer))]

    @property
    def parks(self) -> bool:
        """Whether the optimizer's state may wait in the host's memory during a step. Steps of an optimizer that are recorded as
        CUDA graphs need theirs where it lies, and so may other processes."""
        optimizer = self.stepper
        if not self.options.parks or optimizer is None or self.parallel is not None:
            return False
        return not any(group.get("capturable") for group in optimizer.param_groups)

    def parkable_state(self) -> list[Tensor]:
        optimizer = self.stepper
        return optimizer_tensors(optimizer) if optimizer is not None and self.parks else []

    def owned(self, inputs: list[Tensor]) -> list[bool]:
        """For each input of a step, whether it belongs to the model."""
        model = self.owner
        if model is None:
            return [tensor is not None and tensor.requires_grad for tensor in inputs]
        there = {t.untyped_storage().data_ptr() for t in local_tensors([*model.parameters(), *model.buffers()])}
        return [tensor is not None and tensor.untyped_storage().data_ptr() in there for tensor in inputs]


def settings_from(budget: Any = None, reserve: Any = 0, host_budget: Any = 0, model: torch.nn.Module | None = None,
                  optimizer: torch.optim.Optimizer | None = None, **options: Any) -> Settings:
    known = {"park_optimizer", "planner", "planning_seconds", "waiting_seconds", "profile", "cuda_graphs", "arena", "slices",
             "engine"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(f"unknown option {', '.join(unknown)}; the options are budget, optimizer, reserve, "
                         f"host_budget, {', '.join(sorted(known))}")
    return Settings(budget_bytes=None if budget is None else byte_count("budget", budget),
                    reserve_bytes=byte_count("reserve", reserve),
                    host_budget_bytes=byte_count("host_budget", host_budget), model=model, optimizer=optimizer, **options)
