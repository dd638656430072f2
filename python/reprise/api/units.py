"""Units of fully_shard (FSDP2)."""

from __future__ import annotations

import torch

from ..errors import Unsupported


def is_sharded(module: torch.nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def all_units(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for module in model.modules() if is_sharded(module)]


def innermost_units(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Those that contain no other ones."""
    return [unit for unit in all_units(model) if all_units(unit) == [unit]]


def refuse_sharded(model: torch.nn.Module, function: str) -> None:
    if all_units(model):
        raise Unsupported(f"reprise.{function} does not take a model of fully_shard: call it before the model is sharded")
