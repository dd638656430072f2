"""What the user asked for, checked."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import planning
from .arguments import byte_count

PROFILES = ("measure", "roofline")
CUDA_GRAPHS = ("auto", True, False)


@dataclass
class Settings:
    budget_bytes: int | None = None  # None: no recomputation
    planner: str = planning.AUTO
    planning_seconds: float = 10.0
    profile: str = "measure"
    cuda_graphs: bool | str = "auto"
    reserve_bytes: int = 0
    model: weakref.ReferenceType[torch.nn.Module] | None = None  # compiled code may outlive both
    optimizer: weakref.ReferenceType[torch.optim.Optimizer] | None = None
    optimizer_peak_bytes: int | None = field(default=None, init=False)  # of its latest step

    @property
    def owner(self) -> torch.nn.Module | None:
        return self.model() if self.model is not None else None

    @property
    def stepper(self) -> torch.optim.Optimizer | None:
        return self.optimizer() if self.optimizer is not None else None

    def __post_init__(self) -> None:
        planning.check_planner(self.planner)
        if self.profile not in PROFILES:
            raise ValueError(f"profile={self.profile!r}: choose {' or '.join(map(repr, PROFILES))}")
        self.set_cuda_graphs(self.cuda_graphs)
        if self.planning_seconds <= 0:
            raise ValueError(f"planning_seconds={self.planning_seconds}: must be positive")

    def set_cuda_graphs(self, use: bool | str) -> None:
        if use not in CUDA_GRAPHS:
            raise ValueError(f"cuda_graphs={use!r}: choose 'auto', True or False")
        self.cuda_graphs = use


def settings_from(budget: Any = None, reserve: Any = 0, model: torch.nn.Module | None = None,
                  optimizer: torch.optim.Optimizer | None = None, **options: Any) -> Settings:
    known = {"planner", "planning_seconds", "profile", "cuda_graphs"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(f"unknown option {', '.join(unknown)}; there are budget, optimizer, reserve, "
                         f"{', '.join(sorted(known))}")
    return Settings(budget_bytes=None if budget is None else byte_count("budget", budget),
                    reserve_bytes=byte_count("reserve", reserve),
                    model=None if model is None else weakref.ref(model),
                    optimizer=None if optimizer is None else weakref.ref(optimizer), **options)
